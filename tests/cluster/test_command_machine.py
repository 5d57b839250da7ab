"""Machines that a command starts, with real processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from distributed import Client, Scheduler, SpecCluster

from elastic_dit.cluster.command_machine import CommandMachine
from elastic_dit.cluster.machines import MachineAdaptive
from elastic_dit.config import Config
from tests.cluster.conditions import eventually
from tests.cluster.puppet import register_puppet

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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_machines_of_the_worker_command_come_and_go(tmp_path: Path) -> None:
    """As over SSH: one is there, another may be had."""
    puppet = register_puppet()
    settings = tmp_path / "fake.yaml"
    settings.write_text("engine: {backend: fake}\nplacement: {policy: puppet, max_machines: 2}\n")
    config = Config.load(settings)
    command = [
        sys.executable, "-m", "elastic_dit.cli.worker", "{scheduler}", "--name", "{name}",
        "--virtual-gpus", "2", "--config", str(settings), "--no-control-worker",
    ]  # fmt: skip
    entry = {
        "cls": CommandMachine, "options": {"command": command}, "group": ["-0", "-1"],
    }  # fmt: skip
    scheduler = {"dashboard": False, "dashboard_address": ":0", "host": "127.0.0.1", "port": 0}

    async def check() -> None:
        async with (
            SpecCluster(
                scheduler={"cls": Scheduler, "options": scheduler}, workers={"one": entry},
                asynchronous=True,
            ) as cluster,
            Client(cluster, asynchronous=True),
        ):  # fmt: skip
            adaptive = cluster.adapt(
                Adaptive=MachineAdaptive, config=config, spares={"two": entry}, interval="200ms"
            )

            def names() -> set[str]:
                workers = cluster.scheduler.workers.values()
                return {str(w.name) for w in workers if w.status.name == "running"}

            await eventually(lambda: names() == {"one-0", "one-1"}, limit_s=100.0)
            puppet.nodes = 2
            await eventually(lambda: len(names()) == 4, limit_s=100.0)
            await eventually(lambda: adaptive._arrived == {"one", "two"}, limit_s=100.0)
            puppet.nodes, puppet.retire = 1, ("two",)
            await eventually(lambda: names() == {"one-0", "one-1"}, limit_s=100.0)
            await eventually(lambda: list(cluster.workers) == ["one"], limit_s=100.0)

    asyncio.run(check())
