from __future__ import annotations

import os
import signal
import subprocess
import sys

import click
import pytest

from elastic_dit import __version__
from elastic_dit.cli import commands as commands_module
from elastic_dit.errors import AdmissionRefused
from tests.cli.running import run

HEAVY = {"dask", "distributed", "torch", "diffusers", "transformers", "numpy", "matplotlib"}


@click.command()
@click.argument("what")
def broken(what: str) -> None:
    """Raise."""
    if what == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if what == "interrupt an import":
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:  # as an extension's initialisation may report it
            raise ImportError("numpy.core.multiarray failed to import") from None
    if what == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    if what == "refused":
        raise AdmissionRefused("10 requests wait", 3)
    if what == "pipe":
        raise BrokenPipeError
    if what == "usage":
        raise click.UsageError("contradiction")
    raise RuntimeError("the\nunforeseen")


@pytest.fixture(autouse=True)
def _with_broken_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(commands_module.commands.commands, "broken", broken)


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; from elastic_dit.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    for arguments in (["--help"], ["demo", "--help"], ["generate", "-h"], ["status", "--help"]):
        shown = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert shown.returncode == 0
        assert "Usage: elastic-dit" in shown.stdout
        assert not HEAVY & {name.partition(".")[0] for name in shown.stderr.split()}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "--version")
    assert (ran.code, ran.out) == (0, f"elastic-dit {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Commands:"),
        (("paint",), "No such command 'paint'"),
        (("generate",), "Missing argument 'PROMPT'"),
        (("generate", "a circle", "--size", "33x0"), "'33x0' is no size"),
        (("generate", "a circle", "--steps", "0"), "'--steps': 0 is not in the range"),
        (("generate", "a circle", "--seed", "-1"), "'--seed': -1 is not in the range"),
        (("generate", "a circle", "--seed", str(2**63)), "is not in the range"),
        (("generate", "a circle", "--frames", str(10**30)), "is not in the range"),
        (("generate", "a circle", "--guidance", "much"), "'much' is not a valid float"),
        (("generate", "a circle", "--scheduler", "a", "--scheduler-file", "b"), "exclude each"),
        (("generate", "a circle"), "say which cluster"),
        (("status", "--watch", "--json", "-"), "exclude each other"),
        (("demo", "--virtual-gpus", "0"), "'--virtual-gpus': 0 is not in the range"),
        (("demo", "--requests", "x"), "'x' is not a valid integer"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_errors_of_ours_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "broken", "refused")
    assert (ran.code, ran.error) == (1, "10 requests wait; retry after 3 s")


def test_unexpected_errors_point_to_debug(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "broken", "bug")
    assert ran.code == 1
    assert (
        ran.error == "unexpected RuntimeError: the unforeseen (elastic-dit --debug … shows where)"
    )


def test_debug_shows_the_traceback() -> None:
    code = (
        "import sys, click, elastic_dit.cli.commands as c; from elastic_dit.cli.main import main\n"
        "c.commands.command('broken')(lambda: 1 / 0); main(sys.argv[1:])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, "--debug", "broken"],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 1
    assert "ZeroDivisionError" in shown.stderr
    assert "Traceback" in shown.stderr


def test_reader_that_leaves_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "broken", "pipe")
    assert (ran.code, ran.err) == (1, "")


def test_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    for what, code in (("interrupt", 130), ("interrupt an import", 130), ("terminate", 143)):
        try:
            ran = run(capsys, "broken", what)
        finally:
            logging.disable(logging.NOTSET)
        assert ran.code == code
        assert ran.err.strip() == ""
