"""The three sides of rivals.py: how one request is answered, and which processes compute."""

from __future__ import annotations

import os
import queue
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from elastic_dit.config import Config
from elastic_dit.errors import ElasticDitError
from elastic_dit.report.plain import PlainProcess, frames_digest
from elastic_dit.request import GenerationRequest

LIMIT_S = 120.0
"""Longest wait for one request, and for a process to be replaced, seconds."""
START_LIMIT_S = 400.0
"""Longest start of a side, and longest answer of its process, seconds."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all sides.

    Attributes
    ----------
    gpus : int
        Processes that compute: virtual GPUs, replicas, or loops.
    threads : int
        Torch threads of each.
    ratio : tuple of int
        Ray's replicas of encoder, DiT and decoder; their sum is `gpus`.
    dispatch, placement : str
        Ours: names of the policies.
    backend : str
        ``torch``; ``fake`` tries the script itself, with pretended clips on our side alone.
    """

    gpus: int
    threads: int
    ratio: tuple[int, int, int]
    dispatch: str
    placement: str
    backend: str = "torch"

    @property
    def config(self) -> Config:
        """Settings of the cluster; the model's are those of all sides."""
        return Config.parse(
            {
                "engine": {"backend": self.backend, "cpu_threads": self.threads},
                "placement": {"policy": self.placement},
                "control": {"dispatch": self.dispatch},
            }
        )


class Side(Protocol):
    """What differs between the sides."""

    def answer(self, request: GenerationRequest) -> str:
        """Make its frames; their digest. Called from several threads."""

    def workers(self) -> set[int]:
        """Ids of the processes that compute."""

    def complete(self) -> bool:
        """Whether all of them are there and ready, as far as the side itself knows."""

    def close(self) -> None:
        """End everything."""


class ElasticSide:
    """elastic-dit: a local cluster, with the client in the scheduler's process."""

    def __init__(self, setting: Setting) -> None:
        from elastic_dit.cli.ready import wait_until_settled
        from elastic_dit.client import Client
        from elastic_dit.cluster.launch.local import LocalElasticCluster

        self._gpus, config = setting.gpus, setting.config
        with ExitStack() as stack:
            cluster = stack.enter_context(
                LocalElasticCluster(
                    virtual_gpus=setting.gpus, config=config, dashboard_address=None
                )
            )
            self._client = stack.enter_context(Client(cluster, config=config))
            wait_until_settled(self._client, setting.gpus, START_LIMIT_S)
            self._stack = stack.pop_all()

    def answer(self, request: GenerationRequest) -> str:
        """Submit and wait."""
        fields = request.model_dump(exclude={"deadline_s", "request_id"})
        return frames_digest(self._client.submit(**fields).result(timeout=LIMIT_S).frames)

    def workers(self) -> set[int]:
        """Processes of the engines."""
        pids = self._client.dask.run(_engine_pid, on_error="ignore")
        return {pid for pid in pids.values() if pid is not None}

    def complete(self) -> bool:
        """Whether the control plane knows all engines with all their stages."""
        from elastic_dit.cli.ready import is_settled

        return is_settled(self._client.status(), self._gpus)

    def close(self) -> None:
        """Client first, then the cluster."""
        self._stack.close()


def _engine_pid(dask_worker: Any) -> int | None:
    """On a worker: its process; None where it has no engine."""
    from elastic_dit.cluster.worker.engine_plugin import EnginePlugin

    return os.getpid() if EnginePlugin.name in dask_worker.plugins else None


class PlainSide:
    """The plain diffusers loop, as often as there are GPUs, over one queue of requests."""

    def __init__(self, setting: Setting) -> None:
        self._model, self._threads = setting.config.models[0], setting.threads
        self._gpus = setting.gpus
        self._free: queue.SimpleQueue[PlainProcess] = queue.SimpleQueue()
        self._all: set[PlainProcess] = set()
        self._loading: set[PlainProcess] = set()
        for _ in range(setting.gpus):
            self._free.put(self._start())

    def answer(self, request: GenerationRequest) -> str:
        """Take the next free loop; whoever finds one dead sees to another."""
        plain = self._free.get(timeout=START_LIMIT_S)
        try:
            digest = plain(request).digest
        except ElasticDitError:
            self._all.discard(plain)
            plain.__exit__(None, None, None)
            threading.Thread(target=self._replace, args=(request,), daemon=True).start()
            raise
        self._free.put(plain)
        return digest

    def workers(self) -> set[int]:
        """All loops."""
        return {plain.pid for plain in tuple(self._all)}

    def complete(self) -> bool:
        """Whether as many loops have loaded the model as there shall be."""
        return len(self._all) == self._gpus and not self._loading

    def close(self) -> None:
        """Kill them."""
        for plain in tuple(self._all):
            plain.__exit__(None, None, None)

    def _replace(self, request: GenerationRequest) -> None:
        plain = self._start(loading=True)
        # It is there once it has answered something.
        plain(request.model_copy(update={"num_inference_steps": 1}))
        self._loading.discard(plain)
        self._free.put(plain)

    def _start(self, loading: bool = False) -> PlainProcess:
        plain = PlainProcess(self._model, self._threads, judge=False).__enter__()
        if loading:
            self._loading.add(plain)
        self._all.add(plain)
        return plain


def make_side(name: str, setting: Setting) -> Side:
    """A side by its name in the report."""
    if name == "ray_serve":
        from rival_ray import RaySide

        return RaySide(setting)
    return {"elastic_dit": ElasticSide, "diffusers": PlainSide}[name](setting)
