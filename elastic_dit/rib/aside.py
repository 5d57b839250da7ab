"""One thread for work that may take long or fail, and must disturb nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from functools import partial

__all__ = ["Aside"]

logger = logging.getLogger(__name__)

_WAITING = 2
"""Jobs that may wait; a database that hangs must not gather more."""


class Aside:
    """Runs jobs one after the other in a thread that no process waits for at its end.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(_WAITING)
        self._tell_end: Callable[[], None] | None = None
        # A pool's threads are joined when the interpreter ends, even one that hangs.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Aside {self._thread.name}: {self._jobs.qsize()} waiting>"

    def put(self, job: Callable[[], None]) -> bool:
        """Append a job; False where too many wait."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        return True

    async def close(self, timeout_s: float) -> bool:
        """Let all jobs end, those that wait too; whether they did within `timeout_s` seconds."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._tell_end = partial(_tell, loop, ended)
        self.put(_nothing)  # wakes the thread; where there is no room, it is awake
        try:
            async with asyncio.timeout(timeout_s):
                await ended
        except TimeoutError:
            return False
        return True

    def _run(self) -> None:
        while self._tell_end is None or not self._jobs.empty():
            job = self._jobs.get()
            try:
                job()
            except Exception:
                logger.exception("A job of %r failed", self)
        self._tell_end()


def _nothing() -> None:
    """Wake a thread that waits for a job."""


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    with contextlib.suppress(RuntimeError):  # the loop may be gone
        loop.call_soon_threadsafe(tell)
