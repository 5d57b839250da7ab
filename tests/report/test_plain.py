"""The process around the plain pipeline; ``tests/cli/test_demo`` compares what it computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from elastic_dit.config import ModelConfig
from elastic_dit.errors import ElasticDitError
from elastic_dit.report import plain
from elastic_dit.report.plain import PlainProcess, PlainRun, run_plain
from tests.cli.requests import request

MODEL = ModelConfig(name="shapes", path="embedded:shapes")

ANSWER = """
import json, sys
job = json.loads(sys.stdin.readline())
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"request_id": asked["request_id"], "ok": True,
                      "digest": job["model"]["name"], "seconds": job["threads"]}), flush=True)
"""
NOISY = "import sys; sys.stderr.write('x' * 1_000_000 + '\\n')\n" + ANSWER
DIE = "import sys; sys.stdin.readline(); sys.exit('no such model')"
VANISH = "import os; os._exit(7)"
HANG = "import sys; sys.stdin.read()"


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[subprocess.Popen[str]]]:
    """Run other code in place of the pipeline; returns the processes that were started."""
    start = subprocess.Popen

    def play(code: str) -> list[subprocess.Popen[str]]:
        started: list[subprocess.Popen[str]] = []

        def popen(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
            assert arguments[1:] == ["-m", "elastic_dit.report.plain"]
            started.append(start([sys.executable, "-c", code], **options))
            return started[-1]

        monkeypatch.setattr(plain.subprocess, "Popen", popen)
        return started

    return play


@pytest.mark.parametrize("code", [ANSWER, NOISY], ids=["quiet", "noisy"])
def test_answers_request_by_request(code: str, play) -> None:
    started = play(code)
    runs = list(run_plain(MODEL, [request(1), request(2)], threads=3))
    assert runs == [PlainRun("r1", True, "shapes", 3), PlainRun("r2", True, "shapes", 3)]
    assert started[0].poll() is not None


@pytest.mark.parametrize(
    ("code", "words"), [(DIE, "no such model"), (VANISH, "its process ended with status 7")]
)
def test_its_end_is_an_error_with_its_last_words(code: str, words: str, play) -> None:
    play(code)
    with pytest.raises(ElasticDitError, match=f"the plain pipeline failed: {words}"):
        list(run_plain(MODEL, [request(1)], threads=1))


def test_is_killed_when_it_takes_too_long(play) -> None:
    play(HANG)
    with (
        PlainProcess(MODEL, threads=1, limit_s=0.2) as process,
        pytest.raises(ElasticDitError, match="status -9"),
    ):
        process(request(1))


def test_is_gone_when_the_iterator_is_closed(play) -> None:
    started = play(ANSWER)
    runs = run_plain(MODEL, [request(1), request(2)], threads=1)
    assert next(runs).request_id == "r1"
    runs.close()
    assert started[0].poll() is not None
