"""Faults on purpose: transfers that are slow, lost or damaged, decodes without memory.

For tests, drills and benchmarks. Nothing is wrapped unless the engine's own settings say so
(`FaultsConfig.seed`); settings that come over the network are not asked.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any, cast

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.config import FaultsConfig
from elastic_dit.engine.protocol import Engine
from elastic_dit.events import Event
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef

__all__ = ["Injector"]

_LOOK_S = 0.005
"""How often a delayed computation looks whether it was aborted, seconds."""


class Injector:
    """What goes wrong at one engine.

    Parameters
    ----------
    faults : FaultsConfig

    Attributes
    ----------
    faults : FaultsConfig
        May be replaced at any time.
    injected : Counter of str
        What has been done so far: ``delayed``, ``lost``, ``damaged``, ``out_of_memory``.

    Examples
    --------
    >>> Injector(FaultsConfig()).is_armed
    False
    """

    def __init__(self, faults: FaultsConfig) -> None:
        self.faults = faults
        self.injected: Counter[str] = Counter()
        self._random = random.Random(faults.seed)

    def __repr__(self) -> str:
        return f"<Injector {dict(self.injected)}>"

    @property
    def is_armed(self) -> bool:
        """Whether anything may ever go wrong on purpose."""
        return self.faults.seed is not None

    def around_channel(self, channel: Channel) -> Channel:
        """A channel whose fetches go wrong."""
        return _FaultyChannel(channel, self) if self.is_armed else channel

    def around_engine(self, engine: Engine) -> Engine:
        """An engine whose stages go wrong."""
        return cast("Engine", _FaultyEngine(engine, self)) if self.is_armed else engine

    def happens(self, what: str, share: float) -> bool:
        """Whether a fault of the given probability happens now; counted if it does."""
        if not share or self._random.random() >= share:
            return False
        self.injected[what] += 1
        return True

    async def fetch(self, fetching: Awaitable[Encoded | None]) -> Encoded | None:
        """What arrives of a fetch.

        Raises
        ------
        OSError
            Where it is lost.
        """
        encoded = await fetching
        faults = self.faults
        if self.happens("delayed", faults.transfer_delay):
            await asyncio.sleep(faults.transfer_delay_s)
        if self.happens("lost", faults.transfer_loss):
            raise OSError("lost on purpose")
        if encoded is not None and self.happens("damaged", faults.transfer_corruption):
            return _damaged(encoded)
        return encoded


class _FaultyChannel:
    """A channel that sends as it should and fetches as the injector wants."""

    def __init__(self, channel: Channel, injector: Injector) -> None:
        self._channel = channel
        self._injector = injector

    def __repr__(self) -> str:
        return f"<faulty {self._channel!r}>"

    def send(self, event: Event) -> None:
        self._channel.send(event)

    def publish(self, request_id: str, result: Any) -> None:
        self._channel.publish(request_id, result)

    def give_up(self, reason: str) -> None:
        self._channel.give_up(reason)

    async def fetch(self, address: str, ref: ArtifactRef) -> Encoded | None:
        return await self._injector.fetch(self._channel.fetch(address, ref))


class _FaultyEngine:
    """An engine that takes its time and runs out of memory as the injector wants."""

    def __init__(self, engine: Engine, injector: Injector) -> None:
        self._engine = engine
        self._injector = injector
        self._tiled = False

    def __repr__(self) -> str:
        return f"<faulty {self._engine!r}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def tile_decodes(self, model: str, tiled: bool) -> None:
        self._tiled = tiled
        self._engine.tile_decodes(model, tiled)

    def run(self, stage: Stage, request: Any, inputs: Any, context: Any) -> Any:
        if stage is Stage.DECODER:
            self._before_decode(context)
        return self._engine.run(stage, request, inputs, _SlowContext(context, self._injector))

    def run_in_group(self, request: Any, inputs: Any, context: Any, seat: Any) -> Any:
        slow: Any = _SlowContext(context, self._injector)
        return self._engine.run_in_group(request, inputs, slow, seat)

    def _before_decode(self, context: Any) -> None:
        faults = self._injector.faults
        _wait(faults.decode_delay_s, context)
        if not self._tiled and self._injector.happens("out_of_memory", faults.decode_out_of_memory):
            raise MemoryError("out of memory on purpose")


class _SlowContext:
    """A context whose boundaries take time."""

    def __init__(self, context: Any, injector: Injector) -> None:
        self._context = context
        self._injector = injector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def boundary(self, step: int, total_steps: int) -> Any:
        _wait(self._injector.faults.step_delay_s, self._context)
        return self._context.boundary(step, total_steps)


def _wait(seconds: float, context: Any) -> None:
    """Pretend to compute for so long, or until it is aborted."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not context.aborted():
        time.sleep(min(left, _LOOK_S))


def _damaged(encoded: Encoded) -> Encoded:
    """With one bit of its first byte flipped."""
    frames = [bytes(frame) for frame in encoded.frames]
    for index, frame in enumerate(frames):
        if frame:
            frames[index] = bytes([frame[0] ^ 1]) + frame[1:]
            break
    return Encoded(encoded.header, frames)
