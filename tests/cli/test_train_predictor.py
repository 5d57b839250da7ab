from __future__ import annotations

from pathlib import Path

import pytest

from elastic_dit.predict.examples import write_examples
from elastic_dit.predict.storage import load_estimator
from elastic_dit.reproduce import training
from elastic_dit.reproduce.situations import draw_situations
from elastic_dit.reproduce.static_splits import SplitSearch
from tests.cli.running import run

QUICK = SplitSearch(requests=20, seeds=(0,), moves=1)


def test_it_learns_from_simulations_and_telemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "TRAINING", QUICK)
    recorded = training.simulate_examples(draw_situations(2, seed=5), QUICK, processes=1)
    write_examples(tmp_path / "recorded.jsonl", recorded)
    output = tmp_path / "predictor.skops"
    ran = run(
        capsys, "train-predictor", output, "--situations", 3, "--processes", 1,
        "--telemetry", tmp_path / "recorded.jsonl",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "3 simulated situations and 2 recorded ones" in " ".join(ran.out.split())
    situations = [example.situation for example in recorded]
    assert len(load_estimator(output).predict(situations)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("predictor.skops", "--situations", "0"), "one or more situations"),
        (("no/such/predictor.skops",), "cannot save"),
        (("predictor.skops", "--telemetry", "none.jsonl"), "a readable file"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "train-predictor", *arguments)
    assert ran.code == 1
    assert said in ran.error
    assert list(tmp_path.iterdir()) == []
