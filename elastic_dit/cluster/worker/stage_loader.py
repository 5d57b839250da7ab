"""Which stages one engine holds: loads and drops, and the events that tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.engine_host import EngineHost
from elastic_dit.engine.protocol import Engine
from elastic_dit.errors import ClusterError, ModelLoadError
from elastic_dit.events import (
    DropStage,
    Event,
    LoadStage,
    StageDropped,
    StageLoaded,
    StageLoadFailed,
)
from elastic_dit.request import StageKey

__all__ = ["StageLoader"]


class StageLoader:
    """Loads and drops stages in the order they were asked for.

    Parameters
    ----------
    host : EngineHost
    channel : Channel
        Told of every change, whoever asked for it.
    """

    def __init__(self, host: EngineHost, channel: Channel) -> None:
        self._host = host
        self._channel = channel
        self._plan_epoch = 0
        self._untold: dict[StageKey, Callable[..., Event]] = {}

    def __repr__(self) -> str:
        return f"<StageLoader of {self._host!r}, plan {self._plan_epoch}>"

    def restart(self) -> None:
        """A control plane has numbered the engine: it counts its plans from the start.

        What changed since the engine introduced itself is told now.
        """
        self._plan_epoch = 0
        untold, self._untold = self._untold, {}
        for key, event in untold.items():
            self._tell(key, event)

    def handle(self, command: LoadStage | DropStage) -> None:
        """Carry out a command unless it is of an older plan than the last one."""
        if command.plan_epoch < self._plan_epoch:
            return
        self._plan_epoch = command.plan_epoch
        key = StageKey(command.model, command.stage)
        job: asyncio.Future[Any]
        try:
            if isinstance(command, LoadStage):
                job = self._host.put(lambda: self._load(key))
            else:
                job = self._host.put(lambda: self._drop(key))
        except ClusterError as error:
            self._tell_failed(key, str(error))
            return
        job.add_done_callback(_mark_retrieved)

    async def load(self, key: StageKey) -> float:
        """Make a stage resident; seconds it took.

        Raises
        ------
        ModelLoadError
        """
        return await self._host.put(lambda: self._load(key))

    async def drop(self, key: StageKey) -> None:
        """Free a stage."""
        await self._host.put(lambda: self._drop(key))

    async def _load(self, key: StageKey) -> float:
        try:
            seconds, nbytes = await self._host.run(lambda engine: _load(engine, key))
        except ModelLoadError as error:
            self._tell_failed(key, error.cause)
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._tell_failed(key, message)
            raise ModelLoadError(key.model, key.stage, message) from error
        self._tell(key, partial(StageLoaded, **key._asdict(), seconds=seconds, nbytes=nbytes))
        return seconds

    async def _drop(self, key: StageKey) -> None:
        await self._host.run(lambda engine: engine.drop(key))
        self._tell(key, partial(StageDropped, **key._asdict()))

    def _tell_failed(self, key: StageKey, message: str) -> None:
        self._tell(key, partial(StageLoadFailed, **key._asdict(), message=message))

    def _tell(self, key: StageKey, event: Callable[..., Event]) -> None:
        if self._host.gpu is None:
            self._untold[key] = event
        else:
            self._channel.send(event(gpu=self._host.gpu))


def _load(engine: Engine, key: StageKey) -> tuple[float, int]:
    """Load a stage; the seconds that took, and the memory it takes, bytes."""
    before = engine.info().allocated_bytes
    seconds = engine.load(key)
    return seconds, max(0, engine.info().allocated_bytes - before)


def _mark_retrieved(job: asyncio.Future[Any]) -> None:
    """Its failure went out as an event; asyncio would log it once more."""
    if not job.cancelled():
        job.exception()
