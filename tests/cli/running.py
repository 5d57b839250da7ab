"""Run ``elastic-dit``, in this process or in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from elastic_dit.cli.main import main

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that explains a failure."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("elastic-dit: ")
        return lines[0].removeprefix("elastic-dit: ")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """Exit code and output; the handlers that the command sets are put back."""
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capsys.readouterr()
    return Ran(int(left.value.code or 0), out, err)


def run_process(*arguments: object, timeout_s: float = 60, env: Mapping[str, str] = {}) -> Ran:
    """The same as a user would, with `env` on top of this process's own."""
    ran = subprocess.run(
        [sys.executable, "-m", "elastic_dit.cli.main", *map(str, arguments)],
        check=False, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **env},
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)
