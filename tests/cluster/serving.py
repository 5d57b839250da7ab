"""A cluster of fake engines inside the test's own process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler, Worker

import elastic_dit
from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.engine.protocol import Engine
from tests.cluster.conditions import eventually

QUICK = Config.parse(
    {
        "models": [{"name": "fake", "path": "nowhere"}],
        "control": {"tick_s": 0.05, "progress_interval_s": 0.01},
        "placement": {"interval_s": 0.1},
        "client": {"ready_timeout_s": 10.0},
    }
)
"""Settings under which nothing in a test waits for long."""


def quick(**control: Any) -> Config:
    """`QUICK`, but for some of its settings of control."""
    return Config.parse(
        {**QUICK.model_dump(), "control": {**QUICK.control.model_dump(), **control}}
    )


UNHURRIED = FakeSeconds(step=0.02)
"""Long enough to be caught in the act."""


@dataclass
class Cluster:
    """A scheduler with its control plane, and engine workers that can be added."""

    scheduler: Scheduler
    config: Config
    workers: list[Worker]
    engines: list[FakeEngine]

    @property
    def control(self) -> ControlPlugin:
        return self.scheduler.plugins[ControlPlugin.name]

    async def add_engine(
        self, make: Callable[[], FakeEngine] = FakeEngine, name: str | None = None
    ) -> Worker:
        index = len(self.workers)
        engine = make()

        def make_engine(config: Config, device: str) -> Engine:
            return engine

        plugin = EnginePlugin(
            self.config, device="cpu", node="here", index=index, make_engine=make_engine
        )
        worker = await Worker(
            self.scheduler.address,
            name=name or f"w-{index}",
            nthreads=1,
            host="127.0.0.1",
            memory_limit=0,
            plugins=(plugin,),
        )
        self.workers.append(worker)
        self.engines.append(engine)
        return worker

    async def is_clean(self) -> None:
        """Wait until no request has left anything behind."""
        live = self.control.reactor.controller.table.live
        await eventually(lambda: not live)
        await eventually(lambda: not self.scheduler.tasks)
        for worker in self.workers:
            await eventually(lambda worker=worker: not worker.data)
            runner = worker.plugins[EnginePlugin.name].runner
            await eventually(lambda runner=runner: not len(runner.outbox))


@contextlib.asynccontextmanager
async def serving(
    engines: int = 2,
    *,
    config: Config = QUICK,
    make: Callable[[], FakeEngine] = FakeEngine,
    **scheduler_options: object,
) -> AsyncIterator[Cluster]:
    """A running cluster; its scheduler checks its own state after every transition."""
    options = {
        "host": "127.0.0.1",
        "port": 0,
        "dashboard": False,
        "dashboard_address": ":0",
        **scheduler_options,
    }
    async with Scheduler(**options) as scheduler:
        await ensure_control(scheduler.address, config=config)
        cluster = Cluster(scheduler, config, [], [])
        try:
            for _ in range(engines):
                await cluster.add_engine(make)
            await eventually(lambda: len(cluster.control.reactor.directory) == engines)
            yield cluster
        finally:
            for worker in cluster.workers:
                await worker.close()


def connect(cluster: Cluster, **options: object) -> elastic_dit.Client:
    """An asynchronous client; use it with ``async with``."""
    return elastic_dit.Client(
        cluster.scheduler.address, config=cluster.config, asynchronous=True, **options
    )


def prompts(number: int) -> Sequence[str]:
    """That many different prompts."""
    return [f"a circle number {index}" for index in range(number)]
