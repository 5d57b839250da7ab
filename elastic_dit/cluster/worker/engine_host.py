"""An engine, the thread it lives in, and what is known of it elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.worker.job_queue import JobQueue
from elastic_dit.engine.protocol import Engine, EngineInfo
from elastic_dit.request import GenerationRequest
from elastic_dit.state import GpuId

__all__ = ["CLOSE_TIMEOUT_S", "EngineHost"]

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""Longest wait at closing for a computation to notice that it is to stop, seconds."""


class EngineHost:
    """Everything that touches the engine goes through here, one thing at a time.

    Parameters
    ----------
    make_engine : callable
        Makes the engine; called in the engine's own thread, like all of its methods but
        `count_tokens`, `allowed_dops` and `member_lost`, which must not wait for a stage to end.

    Attributes
    ----------
    gpu : int or None
        Number that the control plane gave it.
    aside : ThreadPoolExecutor
        One thread for what is neither the event loop's work nor the engine's: token counts,
        digests.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self.gpu: GpuId | None = None
        self.aside = ThreadPoolExecutor(1, thread_name_prefix="elastic-dit-aside")
        self._make_engine = make_engine
        self._jobs = JobQueue("elastic-dit-engine")
        self._cards: tuple[ModelCard, ...] = ()
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"<EngineHost gpu {self.gpu}: {self._engine!r}, {len(self._jobs)} jobs>"

    def __len__(self) -> int:
        return len(self._jobs)

    async def open(self) -> None:
        """Make the engine and read the cards of its models.

        Raises
        ------
        Exception
            Whatever the engine's constructor or a model's configuration raises.
        """
        self._jobs.open()
        await self._jobs.put(lambda: self._jobs.in_thread(self._open))

    def _open(self) -> None:
        engine = self._make_engine()
        self._cards = tuple(engine.card(name) for name in engine.models())
        self._info = engine.info()
        self._engine = engine

    async def close(self) -> None:
        """Let the present computation end, then free the device; bounded by `CLOSE_TIMEOUT_S`."""
        ended = await self._jobs.close(CLOSE_TIMEOUT_S)
        self.aside.shutdown(wait=False)
        if self._engine is not None and ended:
            self._engine.close()

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises
        ------
        RuntimeError
            Before `open`.
        """
        if self._engine is None:
            raise RuntimeError("the engine is not open")
        return self._engine

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """Cards of the models it can load."""
        return self._cards

    @property
    def info(self) -> EngineInfo:
        """What it was and held after its last job: asking anew might wait for a whole stage."""
        return self._info

    def put(self, job: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Append a job, in which `run` may be used; see `JobQueue.put`."""
        return self._jobs.put(job)

    async def run(self, function: Callable[[Engine], T]) -> T:
        """``function(engine)`` in the engine's thread; to be awaited inside a job only."""

        def call() -> T:
            try:
                return function(self.engine)
            finally:
                self._info = self.engine.info()

        return await self._jobs.in_thread(call)

    async def in_order(self, function: Callable[[Engine], T]) -> T:
        """``function(engine)`` in the engine's thread, after all that was asked for before."""
        return await self.put(lambda: self.run(function))

    async def count_tokens(self, model: str, text: str) -> int:
        """See `Engine.count_tokens`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.aside, self.engine.count_tokens, model, text)

    async def allowed_dops(self, request: GenerationRequest, limit: int) -> tuple[int, ...]:
        """See `Engine.allowed_dops`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.aside, self.engine.allowed_dops, request, limit)

    def member_lost(self, gpu: GpuId, cause: str) -> None:
        """See `Engine.member_lost`; in the background."""
        self.aside.submit(self.engine.member_lost, gpu, cause)

    def describe(self) -> dict[str, Any]:
        """What it is and holds, as plain data."""
        return {
            "kind": self.info.kind,
            "device": self.info.device,
            "memory_bytes": self.info.memory_bytes,
            "models": [card.model_dump(mode="json") for card in self.cards],
            "resident": [[key.model, str(key.stage)] for key in self.info.resident],
        }
