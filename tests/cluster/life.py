"""A scheduler or engines as a program of its own, to be killed.

Run ``python -m tests.cluster.life scheduler PORT CONFIG`` or ``… engines PORT CONFIG COUNT LOG``;
engines note in the log each request that they have decoded.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from distributed import Scheduler, Worker

from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.request import Stage

STEP_S = 0.05


class NotingEngine(FakeEngine):
    """Notes each request it has decoded."""

    log: Path

    def run(self, stage: Stage, request: Any, *args: Any) -> Any:
        output = super().run(stage, request, *args)
        if stage is Stage.DECODER:
            with self.log.open("a") as file:
                file.write(f"{request.request_id}\n")
        return output


async def scheduler(port: str, config: Config) -> None:
    async with Scheduler(
        host="127.0.0.1", port=int(port), dashboard=False, dashboard_address="127.0.0.1:0"
    ) as running:
        await ensure_control(running.address, config=config)
        await running.finished()


async def engines(port: str, config: Config, count: str, log: str) -> None:
    def make(config: Config, device: str) -> NotingEngine:
        noting = NotingEngine(seconds=FakeSeconds(step=STEP_S))
        noting.log = Path(log)
        return noting

    workers = [
        await Worker(
            f"tcp://127.0.0.1:{port}",
            name=f"w-{index}",
            nthreads=1,
            host="127.0.0.1",
            memory_limit=0,
            plugins=(
                EnginePlugin(config, device="cpu", node="here", index=index, make_engine=make),
            ),
        )
        for index in range(int(count))
    ]
    await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    role, port, config_file, *rest = sys.argv[1:]
    run = {"scheduler": scheduler, "engines": engines}[role]
    asyncio.run(run(port, Config.load(config_file), *rest))
