"""Machines that a command starts, with real processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from elastic_dit.cluster.launch.command_machine import CommandMachine

pytestmark = pytest.mark.cluster


def test_a_command_is_told_where_the_scheduler_is_and_may_end_by_itself(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(' '.join(sys.argv[2:]))"
    out = tmp_path / "out"

    async def check() -> None:
        machine = CommandMachine(
            "tcp://here:1",
            name="m1",
            command=[sys.executable, "-c", script, str(out), "{scheduler}", "{name}"],
        )
        await machine
        await machine.close()

    asyncio.run(check())
    assert out.read_text() == "tcp://here:1 m1"


def test_a_command_that_does_not_end_is_made_to() -> None:
    async def check() -> None:
        machine = CommandMachine("tcp://here:1", name="m1", command=["sleep", "600"], grace_s=0.05)
        await machine
        process = machine._process
        assert process is not None
        await machine.close()
        assert process.returncode == -signal.SIGTERM

    asyncio.run(check())


def test_a_program_that_is_not_there() -> None:
    async def check() -> None:
        with pytest.raises(FileNotFoundError):
            await CommandMachine("tcp://here:1", name="m1", command=["/no/such/program"])

    asyncio.run(check())
