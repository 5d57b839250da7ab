"""The cluster that a drill hurts, and ways to hurt it."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from elastic_dit.client import Client
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.cluster.launch.processes import end_quickly
from elastic_dit.cluster.launch.workers import CONTROL_SUFFIX
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config, FaultsConfig
from elastic_dit.drill.witness import Witness
from elastic_dit.errors import ClusterError
from elastic_dit.state import GpuId

__all__ = ["Stand"]

T = TypeVar("T")

_LOOK_S = 0.01
"""Seconds between two looks at what nobody tells of."""
_NAME = "drill"


class Stand:
    """A local cluster, its client, and a witness of all its lives.

    Parameters
    ----------
    gpus : int
        Virtual GPUs.
    config : Config
        With a journal, and armed for faults.

    Attributes
    ----------
    config : Config
    witness : Witness
    client : Client
    """

    def __init__(self, gpus: int, config: Config) -> None:
        self.gpus = gpus
        self.config = config
        self.witness = Witness()
        self._open()

    def __repr__(self) -> str:
        return f"<Stand of {self.gpus} GPUs>"

    def _open(self) -> None:
        self._cluster = LocalElasticCluster(
            virtual_gpus=self.gpus,
            config=self.config,
            name=_NAME,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,  # what is broken on purpose complains
        )
        control = self._cluster.scheduler.plugins[ControlPlugin.name]
        self._reactor = control.reactor
        self._planning = control.planning
        # At once: what an earlier life has left goes on by itself.
        self._reactor.onlookers.append(self.witness.note)
        try:
            self.client = self.another_client()
        except BaseException:
            self._cluster.close()
            raise

    def close(self) -> None:
        """End everything."""
        self.client.close()
        self._cluster.close()

    def another_client(self) -> Client:
        """A client of its own connection."""
        return Client(self._cluster, config=self.config)

    # -- looking
    def look(self, at: Callable[[Any], T]) -> T:
        """``at(controller)`` in the control plane's own thread."""

        async def call() -> T:
            return at(self._reactor.controller)

        found: T = self._cluster.sync(call)
        return found

    def until(self, found: Callable[[], T | None], limit_s: float, what: str) -> T:
        """The first value of `found` that counts as true, polled.

        Raises
        ------
        ClusterError
            Where there is none within `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        while not (value := found()):
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {limit_s:g} s")
            time.sleep(_LOOK_S)  # nothing notifies of it
        return value

    def is_whole(self) -> bool:
        """Whether every GPU is idle and holds what the plan gives it."""

        def look(controller: Any) -> bool:
            planned = controller.plan.residency
            return len(controller.pool) == self.gpus and all(
                gpu.is_idle and gpu.resident == set(planned.get(gpu.gpu, ()))
                for gpu in controller.pool
            )

        return self.look(look)

    @property
    def planner(self) -> str:
        """Address of the worker whose scheduler actor plans; empty where none does."""
        return str(self._planning.planner)

    # -- hurting
    def kill(self, gpu: GpuId) -> float:
        """End a GPU's engine at once; when, on the monotonic clock."""
        return self._signal(self._worker(gpu), signal.SIGKILL)

    def hang(self, gpu: GpuId) -> float:
        """Stop a GPU's engine where it is; when."""
        return self._signal(self._worker(gpu), signal.SIGSTOP)

    def kill_control_worker(self) -> float:
        """End the process of the scheduler actor; when."""
        return self._signal(_NAME + CONTROL_SUFFIX, signal.SIGKILL)

    def kill_all(self) -> float:
        """End every worker at once; when the first one did."""
        return min(self._signal(name, signal.SIGKILL) for name in tuple(self._cluster.workers))

    def restart(self) -> None:
        """Another cluster with the same journal, in place of this one, whose workers were killed.

        Their nannies are about to start others, which a close in good order would wait for.
        """
        self.client.close()
        self._cluster.sync(end_quickly, tuple(self._cluster.workers.values()))
        self._cluster.close()
        self._open()

    def arm(self, **faults: float) -> None:
        """Let all engines do this wrong from now on, besides what the settings say."""
        wanted = self.config.faults.model_copy(update=faults)
        self.client.dask.run(_arm, wanted, on_error="ignore")

    def injected(self) -> int:
        """Faults that the engines of now have injected."""
        counts: Counter[str] = Counter()
        for told in self.client.dask.run(_injected, on_error="ignore").values():
            counts.update(told if isinstance(told, dict) else {})
        return counts.total()

    def kept_bytes(self) -> int:
        """Tensors that the engines keep for others, bytes."""
        told = self.client.dask.run(_kept_bytes, on_error="ignore").values()
        return sum(nbytes for nbytes in told if isinstance(nbytes, int))

    def _worker(self, gpu: GpuId) -> str:
        address = self._reactor.directory.address(gpu)
        known = self._cluster.scheduler.workers.get(address)
        if known is None:
            raise ClusterError(f"GPU {gpu} has no worker")
        return str(known.name)

    def _signal(self, worker: str, number: signal.Signals) -> float:
        pid = self._cluster.workers[worker].pid
        with suppress(ProcessLookupError, TypeError):  # it is gone already
            os.kill(pid, number)
        return time.monotonic()


def _arm(faults: FaultsConfig, dask_worker: Any = None) -> None:
    plugin = dask_worker.plugins.get(EnginePlugin.name)
    if plugin is not None:
        plugin.runner.injector.faults = faults


def _injected(dask_worker: Any = None) -> dict[str, int]:
    plugin = dask_worker.plugins.get(EnginePlugin.name)
    return {} if plugin is None else dict(plugin.runner.injector.injected)


def _kept_bytes(dask_worker: Any = None) -> int:
    plugin = dask_worker.plugins.get(EnginePlugin.name)
    return 0 if plugin is None else int(plugin.runner.outbox.nbytes)
