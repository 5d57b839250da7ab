"""Whatever the documents tell people to run is something that runs."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml

from elastic_dit.config import Config
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.schemas import ImageCreate, VideoCreate
from tests.cli.running import run_process
from tests.commands import ROOT, check, told, words_of

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("elastic_dit/**/*.md"),
    ]
)
pytestmark = pytest.mark.usefixtures("files_of_users")
BY_HAND = {"source", "python3", "pip", "pre-commit", "docker", "kubectl", "head", "ssh-keygen"}
"""Programs of others, whose words are not checked."""


@pytest.fixture
def files_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates and the like that only users have count as there."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: value)


def names_of(documents: list[Path]) -> list[str]:
    return [str(document.relative_to(ROOT)) for document in documents]


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of(DOCUMENTS))
def test_commands_would_run(document: Path) -> None:
    for words in told(document):
        if check(words):
            continue
        name = Path(words[0]).name
        if name == "make":
            targets = set(words[1:]) - {word for word in words if "=" in word}
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
        elif name == "python":
            script = next(word for word in words[1:] if not word.startswith("-"))
            assert (ROOT / script).is_file(), words
        else:
            assert name in {*BY_HAND, "curl"}, words


def test_there_are_commands_to_check() -> None:
    told_at_all = [words for document in DOCUMENTS for words in told(document)]
    assert sum(check(words) for words in told_at_all) > 15


@pytest.mark.parametrize(
    "wrong",
    [
        "elastic-dit serve --virtual-gpu 4",
        "elastic-dit serves",
        "elastic-dit-worker tcp://a:8786 --virtual-gpus none",
        "elastic-dit-worker tcp://a:8786 --confg file",
        "dask scheduler --hst 127.0.0.1",
        "dask elastic-dit-worker tcp://a:8786 --gpus 3",
    ],
)
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        check(words_of(wrong))


def test_settings_named_in_commands_are_there() -> None:
    """And can be read, where they are the project's own."""
    read = []
    for document in DOCUMENTS:
        for words in told(document):
            for option, path in itertools.pairwise(words):
                if option == "--config" and path.startswith("configs/"):
                    read.append(Config.load(ROOT / path))
    assert read


def test_settings_shown_are_settings() -> None:
    shown = 0
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            Config.parse(yaml.safe_load(block))
            shown += 1
    assert shown > 3


def test_requests_by_curl_are_answered() -> None:
    """Every path is a route, every body a request."""
    routes = make_app(FakeDesk()).app.openapi()["paths"]
    patterns = [re.sub(r"{\w+}", "[^/]+", route) for route in routes]
    bodies = {"/v1/videos": VideoCreate, "/v1/images/generations": ImageCreate}
    seen = set()
    for document in DOCUMENTS:
        for words in told(document):
            urls = [word for word in words if word.startswith("http://127.0.0.1:8000/")]
            if words[0] != "curl" or not urls:
                continue
            path = urlsplit(urls[0]).path
            assert any(re.fullmatch(pattern, path) for pattern in patterns), path
            if "-d" in words:
                bodies[path].model_validate(json.loads(words[words.index("-d") + 1]))
            seen.add(path)
    assert bodies.keys() <= seen


@pytest.mark.timeout(300)
def test_what_needs_no_cluster_is_run(tmp_path: Path) -> None:
    """The simulation that README tells of."""
    [words] = [words for words in told(ROOT / "README.md") if words[:2] == ["elastic-dit", "plan"]]
    ran = run_process(*words[1:], "--json", tmp_path / "plan.json", timeout_s=280)
    assert ran.code == 0, ran.error
    assert json.loads((tmp_path / "plan.json").read_text())


def test_tests_that_are_named_exist() -> None:
    named = 0
    for document in DOCUMENTS:
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text("utf-8")):
            source = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^\s*(async )?def {name}\(", source, re.MULTILINE), (path, name)
            named += 1
    assert named > 30


def test_settings_that_are_named_exist() -> None:
    """Those of `section.name` in the pages that are about settings."""
    sections = {name: field for name, field in Config().model_dump().items() if name != "models"}
    for page in ("tuning", "faq", "deploy", "durability", "machines"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for section, name in re.findall(r"`(\w+)\.(\w+)`", text):
            if section in sections:
                assert name in sections[section], (page, section, name)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        assert f" {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation
