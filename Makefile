# Every target does its own set-up: a virtual environment in .venv, pinned by constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUTPUT ?= outputs
# Tests that run at once: many of them wait for processes they started.
JOBS   ?= 2
# Ray is not installed by any target: pip install -c constraints.txt -e '.[rivals]', then RIVALS=
RIVALS ?= --without ray

.PHONY: demo test test-bench lint format docs bench clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("elastic-dit needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.docs: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime  ## a local cluster of virtual GPUs makes a dozen clips into outputs/
	@$(BIN)/elastic-dit demo --output $(OUTPUT)

test: $(VENV)/.dev  ## tests and doctests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --reruns 1 -m 'not bench' $(PYTEST_ARGS)

test-bench: $(VENV)/.dev  ## that the scripts of benchmarks and examples run, tiny
	$(BIN)/python -m pytest -m bench tests

lint: $(VENV)/.dev  ## style, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.dev  ## let ruff arrange the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## the documentation site into site/
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.runtime  ## measure and write benchmarks/results/*.json
	$(BIN)/python benchmarks/overhead.py --json benchmarks/results/overhead.json
	$(BIN)/python benchmarks/decision_time.py --json benchmarks/results/decision_time.json
	$(BIN)/python benchmarks/simulator_fidelity.py --json benchmarks/results/simulator_fidelity.json
	$(BIN)/python benchmarks/rivals.py $(RIVALS) --json benchmarks/results/rivals.json

clean:  ## remove the environment and everything made
	rm -rf $(VENV) $(OUTPUT) site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
