"""End the process of an engine that hangs, so that its nanny starts another."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

__all__ = ["Restarts"]

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
"""A process that is dead, not hanging, has left the scheduler by itself within this time."""
_KILL_TIMEOUT_S = 30.0
"""Longest wait for a nanny to end its process, seconds."""


class Restarts:
    """Workers whose processes are being ended.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Restarts: {len(self._tasks)} under way>"

    def begin(self, address: str) -> None:
        """End the process of the worker at `address` unless it has left soon."""
        task = asyncio.get_running_loop().create_task(self._restart(address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _restart(self, address: str) -> None:
        await asyncio.sleep(_GRACE_S)  # nobody tells that a worker does *not* leave
        if address not in self._scheduler.workers:
            return
        try:
            await self._scheduler.restart_workers(
                [address],
                timeout=_KILL_TIMEOUT_S,
                wait_for_workers=False,
                on_error="return",
                stimulus_id="elastic-dit-hung",
            )
        except Exception:
            logger.exception("Cannot restart the worker at %s", address)
