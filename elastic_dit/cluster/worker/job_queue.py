"""What one engine does, one thing at a time, in the order in which it was told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from elastic_dit.errors import ClusterError

__all__ = ["QUEUE_LIMIT", "JobQueue"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

QUEUE_LIMIT = 1000
"""Jobs that may wait for one engine; the control plane keeps its own queues far below it."""

Job = Callable[[], Awaitable[Any]]


class JobQueue:
    """A bounded queue of coroutines and the one thread in which their heavy parts run.

    Parameters
    ----------
    name : str
        Prefix of the thread's name.

    Notes
    -----
    Not thread-safe: used from one event loop. The thread is never one of Dask's, so heartbeats
    and transfers go on while a stage computes.
    """

    def __init__(self, name: str) -> None:
        self._jobs: asyncio.Queue[tuple[Job, asyncio.Future[Any]]] = asyncio.Queue(QUEUE_LIMIT)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._consumer: asyncio.Task[None] | None = None
        self._busy = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<JobQueue {len(self)} jobs>"

    def __len__(self) -> int:
        return self._jobs.qsize() + self._busy

    def open(self) -> None:
        """Begin to work."""
        self._consumer = asyncio.create_task(self._consume())

    def put(self, job: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Append a job; the future has its outcome.

        Raises
        ------
        ClusterError
            Where `QUEUE_LIMIT` jobs wait already, or none will be done any more.
        """
        if self._closed:
            raise ClusterError("this engine is closed")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._jobs.put_nowait((job, done))
        except asyncio.QueueFull:
            raise ClusterError(f"{QUEUE_LIMIT} jobs wait for this engine already") from None
        return done

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in the engine's thread; to be awaited inside a job only."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    async def close(self, timeout_s: float) -> bool:
        """Stop after the function that runs now; closing again is fine.

        Returns
        -------
        bool
            Whether the thread ended within `timeout_s`.
        """
        if self._consumer is not None:
            self._consumer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._consumer
        while not self._jobs.empty():
            self._jobs.get_nowait()[1].cancel()
        if self._closed:
            return True
        self._closed = True
        ended = asyncio.get_running_loop().create_future()
        self._executor.submit(_tell, asyncio.get_running_loop(), ended)
        self._executor.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await ended
        return bool(ended.done() and not ended.cancelled())

    async def _consume(self) -> None:
        while True:
            # In a frame of its own: what a job holds goes with it, not when the next one comes.
            await self._do(*await self._jobs.get())

    async def _do(self, job: Job, done: asyncio.Future[Any]) -> None:
        self._busy = True
        try:
            outcome = await job()
        except asyncio.CancelledError:
            done.cancel()
            raise
        except Exception as error:
            if done.cancelled():
                logger.exception("A job that nobody waits for failed")
            else:
                done.set_exception(error)
        else:
            if not done.cancelled():
                done.set_result(outcome)
        finally:
            self._busy = False


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    # The loop may be gone by the time a long computation lets this run.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_set, ended)


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
