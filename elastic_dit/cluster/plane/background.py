"""Work beside the event loop's handlers: named, counted, and ended with their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Background"]

logger = logging.getLogger(__name__)


class Background:
    """Tasks by subject. What fails is logged, since nobody awaits it.

    Examples
    --------
    >>> async def main() -> None:
    ...     background = Background()
    ...     background.begin("r1", asyncio.sleep(0))
    ...     print(background)
    ...     await background.settled("r1")
    ...     print(background)
    >>> asyncio.run(main())
    <Background: 1 tasks>
    <Background: 0 tasks>
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], str] = {}

    def __repr__(self) -> str:
        return f"<Background: {len(self)} tasks>"

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, subject: str) -> bool:
        return subject in self._tasks.values()

    def begin(self, subject: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task, whatever else runs for its subject."""
        task = asyncio.create_task(work)
        self._tasks[task] = subject
        task.add_done_callback(self._done)

    async def settled(self, subject: str) -> None:
        """Wait until nothing that runs now for a subject runs any more."""
        tasks = [task for task, about in self._tasks.items() if about == subject]
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel all, and wait for that."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        subject = self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Failed for %s", subject, exc_info=error)
