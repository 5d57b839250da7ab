"""A placement policy that does what a test says, and machines inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed import Worker
from distributed.deploy.spec import ProcessInterface

from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.control.placement import register_placement
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.engine.fake import FakeEngine
from elastic_dit.engine.protocol import Engine
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, PlacementPlan

Stages = Mapping[GpuId, Sequence[Stage]]


class Puppet:
    """Stages per GPU as a test says, all stages on GPUs it does not speak of.

    Attributes
    ----------
    stages : mapping of int to sequence of Stage
    nodes : int or None
    retire : tuple of str
    reason : str
    """

    def __init__(self) -> None:
        self.stages: Stages = {}
        self.nodes: int | None = None
        self.retire: tuple[str, ...] = ()
        self.reason = "as the test says"
        self._models: tuple[str, ...] = ()
        self._published: tuple[Any, ...] | None = None

    def made_for(self, models: Sequence[str]) -> Puppet:
        self._models = tuple(models)
        return self

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        residency = {
            gpu.gpu: frozenset(
                StageKey(model, stage)
                for model in self._models
                for stage in self.stages.get(gpu.gpu, tuple(Stage))
            )
            for gpu in snapshot.gpus
            if gpu.node not in self.retire
        }
        told = (residency, self.nodes, self.retire)
        if told == self._published:
            return None
        self._published = told
        return PlacementPlan(
            epoch=snapshot.plan_epoch + 1,
            residency=residency,
            reason=self.reason,
            nodes=self.nodes,
            retire=self.retire,
        )


def register_puppet() -> Puppet:
    """A fresh one, under the name ``puppet``."""
    puppet = Puppet()
    register_placement("puppet", lambda _, models: puppet.made_for(models))
    return puppet


class EnginesTogether(ProcessInterface):  # type: ignore[misc]
    """A machine with several engines: what a job of a batch system is."""

    def __init__(
        self, scheduler: str, *, name: Any, config: Config, make: Callable[[], FakeEngine],
        size: int = 2,
    ) -> None:  # fmt: skip
        super().__init__(scheduler=scheduler, name=name)
        self.name, self.scheduler = name, scheduler
        self._config, self._make, self._size = config, make, size
        self._workers: list[Worker] = []

    async def start(self) -> None:
        def make_engine(config: Config, device: str) -> Engine:
            return self._make()

        for index in range(self._size):
            plugin = EnginePlugin(
                self._config, device="cpu", node=f"m{self.name}", index=index,
                make_engine=make_engine,
            )  # fmt: skip
            self._workers.append(
                await Worker(
                    self.scheduler, name=f"{self.name}-{index}", nthreads=1, host="127.0.0.1",
                    memory_limit=0, plugins=(plugin,),
                )
            )  # fmt: skip
        await super().start()

    async def close(self) -> None:
        for worker in self._workers:
            await worker.close()
        await super().close()
