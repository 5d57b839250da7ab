"""A journal off the event loop: changes in groups, one commit for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from elastic_dit.errors import JournalError
from elastic_dit.journal.entry import Change
from elastic_dit.journal.journal import Journal

__all__ = ["GROUP_LIMIT", "JournalWriter"]

T = TypeVar("T")

GROUP_LIMIT = 1_000
"""Changes in one commit."""


@dataclass(slots=True)
class _Job:
    """A change to make or a question to ask, and who waits for it."""

    work: Change | Callable[[Journal], Any]
    done: asyncio.Future[Any]


class JournalWriter:
    """Gives the journal to a thread of its own, in the order of the calls.

    However many changes wait while a commit is on its way to the disk, the next commit takes
    them all. A question sees every change before it.

    Parameters
    ----------
    open_journal : callable
        Opens the journal, in the thread.

    Examples
    --------
    >>> from elastic_dit.journal.entry import Forgotten
    >>> from elastic_dit.journal.journal import MemoryJournal
    >>> async def main() -> None:
    ...     writer = JournalWriter(MemoryJournal)
    ...     await writer.write(Forgotten("r1"))
    ...     print(await writer.read(lambda journal: journal.find(["r1"])))
    ...     await writer.close()
    >>> asyncio.run(main())
    {}
    """

    def __init__(self, open_journal: Callable[[], Journal]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elastic-dit-journal")
        self._open_journal = open_journal
        self._journal: Journal | None = None
        self._jobs: deque[_Job] = deque()
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<JournalWriter of {self._journal!r}: {len(self)} jobs waiting>"

    def __len__(self) -> int:
        return len(self._jobs)

    def write(self, change: Change) -> asyncio.Future[None]:
        """Make a change; the future is done once it is safe, or has the `JournalError`.

        Nobody needs to await it: an error that nobody sees is no complaint of asyncio's.
        """
        return self._put(change)

    async def read(self, question: Callable[[Journal], T]) -> T:
        """What `question` finds in the journal, after all changes so far.

        Raises
        ------
        JournalError
            Where it cannot be read or is closed, and whatever `question` raises.
        """
        answer: T = await self._put(question)
        return answer

    async def close(self) -> None:
        """Make what was asked for, then close."""
        self._closed = True
        if self._running is not None:
            await asyncio.wait({self._running})
        if self._journal is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.close)
        self._thread.shutdown(wait=False)

    def _put(self, work: Change | Callable[[Journal], Any]) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_mark_retrieved)
        if self._closed:
            done.set_exception(JournalError(repr(self._journal), "is closed"))
            return done
        self._jobs.append(_Job(work, done))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return done

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._jobs:
                await self._do(loop, self._next_group())
        finally:
            self._running = None

    def _next_group(self) -> list[_Job]:
        """Changes up to the next question, or that question."""
        group = [self._jobs.popleft()]
        if not callable(group[0].work):
            while self._jobs and not callable(self._jobs[0].work) and len(group) < GROUP_LIMIT:
                group.append(self._jobs.popleft())
        return group

    async def _do(self, loop: asyncio.AbstractEventLoop, group: list[_Job]) -> None:
        try:
            answer = await loop.run_in_executor(self._thread, self._work, group)
        except BaseException as error:
            for job in group:
                if not job.done.done():
                    job.done.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for job in group:
            if not job.done.done():
                job.done.set_result(answer)

    def _work(self, group: list[_Job]) -> Any:
        """In the thread."""
        if self._journal is None:
            self._journal = self._open_journal()
        first = group[0].work
        if callable(first):
            return first(self._journal)
        changes: list[Any] = [job.work for job in group]
        self._journal.apply(changes)
        return None


def _mark_retrieved(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
