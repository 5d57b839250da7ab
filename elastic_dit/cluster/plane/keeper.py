"""Requests that outlive the cluster: written down as they come, brought back after a restart.

A result is written to its file first and the end of its request after that; only then do clients
hear of it. Whatever the moment at which everything is killed, the next life finds either a
request that has not ended, and runs it, or its result: no request runs twice to a result, and none
is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.background import Background
from elastic_dit.cluster.plane.endings import ended_by
from elastic_dit.cluster.plane.expiry import Expiry
from elastic_dit.cluster.plane.file_calls import BACKOFF_S, TRIES, FileCalls
from elastic_dit.cluster.plane.kept_results import KeptResults
from elastic_dit.cluster.plane.resumption import Resumption
from elastic_dit.config import JournalConfig
from elastic_dit.errors import AdmissionRefused, JournalError
from elastic_dit.events import Cancelled, Complete, Fail, StartStage
from elastic_dit.journal.entry import Accepted, Ended, Entry, Started
from elastic_dit.journal.journal import Page
from elastic_dit.journal.results import ResultStore
from elastic_dit.journal.sqlite import SqliteJournal
from elastic_dit.journal.writer import JournalWriter
from elastic_dit.request import Stage

if TYPE_CHECKING:
    from elastic_dit.cluster.plane.reactor import Reactor

__all__ = ["RequestKeeper", "check_journal", "result_folder"]

logger = logging.getLogger(__name__)

_MOST_PENDING = 10_000
"""Changes that may wait for the disk; with more, nothing is accepted."""
_PENDING_RETRY_S = 1.0


def result_folder(config: JournalConfig) -> str:
    """Where results are kept: as configured, or in a folder beside the journal.

    >>> result_folder(JournalConfig(path="/var/lib/dit/journal.sqlite"))
    '/var/lib/dit/journal.sqlite.results'
    """
    if config.results is not None:
        return config.results
    return f"{Path(config.path or '').absolute()}.results"


def check_journal(config: JournalConfig) -> None:
    """Say before anything is opened that results could not be kept.

    Raises
    ------
    ConfigError
        Where fsspec does not know how.
    """
    if config.path is not None:
        ResultStore(result_folder(config))


class RequestKeeper:
    """The control plane's journal and result store.

    Parameters
    ----------
    reactor : Reactor
    config : JournalConfig
        With a `path`; see `check_journal`.

    Attributes
    ----------
    results : KeptResults
    """

    def __init__(self, reactor: Reactor, config: JournalConfig) -> None:
        assert config.path is not None
        path = config.path
        self._reactor = reactor
        self._ttl_s = config.ttl_s
        self._store = ResultStore(result_folder(config))
        self._journal = JournalWriter(lambda: SqliteJournal(path))
        self._files = FileCalls(reactor, self._store.url)
        self.results = KeptResults(reactor, self._journal, self._files)
        self._resumption = Resumption(reactor)
        forget, now = reactor.controller.forget, reactor.clock()
        self._expiry = Expiry(self._journal, self._store, config.ttl_s, forget, now)
        self._ends = Background()
        self._begun: dict[str, tuple[int, Stage]] = {}
        self._is_suspended = False
        self._opening = self._begin_opening()

    def __repr__(self) -> str:
        return f"<RequestKeeper {self._journal!r}, {self._store!r}>"

    # -- life
    async def ready(self) -> None:
        """Wait until the requests of the life before are back; tries again where that failed.

        Raises
        ------
        JournalError
            Where the journal cannot be opened: then nothing is accepted.
        """
        if _failure(self._opening) is not None:
            self._opening = self._begin_opening()
        await asyncio.shield(self._opening)

    def suspend(self) -> None:
        """The cluster goes down: what ends from now on ends because of that, and runs again."""
        self._is_suspended = True

    async def close(self) -> None:
        """Write what is to be written, and let go of the journal."""
        self.suspend()
        self._opening.cancel()
        await asyncio.wait({self._opening})
        for part in (self._ends, self.results, self._expiry, self._journal):
            await part.close()

    def _begin_opening(self) -> asyncio.Task[None]:
        opening = asyncio.create_task(self._open())
        opening.add_done_callback(_log_failure)
        return opening

    async def _open(self) -> None:
        entries = await self._journal.read(lambda journal: journal.begin_life())
        kept = await asyncio.to_thread(self._kept_of, entries)
        ends = list(self._resumption.resume(entries, kept))
        for end in ends:
            self._journal.write(end)
        if entries:
            text = "%d requests of an earlier life go on; %d more had a result, or cannot"
            logger.warning(text, len(entries) - len(ends), len(ends))

    def _kept_of(self, entries: Sequence[Entry]) -> set[str]:
        """Ids of those whose results are there, only their ends not written."""
        began = (entry.request for entry in entries if entry.attempts)
        return {request.request_id for request in began if self._store.holds(request)}

    # -- what is asked
    async def find(self, request_ids: Iterable[str]) -> dict[str, Entry]:
        """Entries by id, those that there are.

        Raises
        ------
        JournalError
        """
        wanted = tuple(request_ids)
        return await self._journal.read(lambda journal: journal.find(wanted))

    async def page(self, page: Page) -> Sequence[Entry]:
        """A part of the list of all requests.

        Raises
        ------
        UnknownRequest
            Where it is to begin after one that is not there.
        JournalError
        """
        return await self._journal.read(lambda journal: journal.page(page))

    def expires_at(self, finished_at: float | None) -> float | None:
        """When a request that ended at a time will be forgotten; wall-clock seconds."""
        return None if finished_at is None else finished_at + self._ttl_s

    # -- what happens
    def check_room(self) -> None:
        """Refuse to accept more while the disk does not keep up.

        Raises
        ------
        AdmissionRefused
        """
        pending = len(self._journal)
        if pending >= _MOST_PENDING:
            raise AdmissionRefused(f"{pending} changes wait for the disk", _PENDING_RETRY_S)

    async def accept(self, entries: Sequence[Entry]) -> None:
        """Write accepted requests down; on return they, and those accepted before, are safe.

        Raises
        ------
        JournalError
        """
        writes = [self._journal.write(Accepted(entry)) for entry in entries]
        if not writes:
            await self._journal.read(_nothing)  # all are known; whoever brought them may yet wait
        for write in writes:
            await write

    def begin(self, start: StartStage) -> None:
        """A stage begins: should the cluster go down now, that counts."""
        request_id, begun = start.request.request_id, (start.attempt, start.stage)
        if self._begun.get(request_id) != begun:
            self._begun[request_id] = begun
            self._journal.write(Started(request_id, *begun))

    def end(self, command: Complete | Fail | Cancelled) -> None:
        """A request ends: write that down, its result first, then let the reactor tell."""
        if not self._is_suspended:
            self._ends.begin(command.request_id, self._write_end(command))

    def result_lost(self, request_id: str) -> None:
        """A result went with its worker while clients wait for it."""
        if not self._is_suspended:
            self.results.lost(request_id)

    async def settled(self, request_id: str) -> None:
        """Wait until the end of a request, if it has come, is written and told."""
        await self._ends.settled(request_id)

    async def forget(self, request_id: str) -> None:
        """Forget a request that is over, and its result.

        Raises
        ------
        JournalError
        """
        await self.settled(request_id)  # a result that is being written would outlive its entry
        await self._expiry.remove([request_id])

    def tick(self, now: float) -> None:
        """Let time pass: some requests expire, others wait in vain."""
        self._expiry.tick(now)
        self._resumption.tick(now)

    # -- within
    async def _write_end(self, command: Complete | Fail | Cancelled) -> None:
        key = command.request_id
        has_result = False
        if isinstance(command, Complete):
            kept = await self._files.keep(command)
            if kept is None:
                await self._run_again(key)
                return
            has_result = kept
        attempts, _ = self._begun.pop(key, (0, None))
        await self._write_or_complain(ended_by(command, time.time(), attempts, has_result))
        # Where its worker died just now, the file is read.
        if self._reactor.conclude(command) or await self.results.give_again(key):
            futures.release(self._reactor.scheduler, key)

    async def _run_again(self, key: str) -> None:
        """A result is gone before its end was written."""
        if await self.results.give_again(key):  # nothing is known of it any more
            self._begun.pop(key, None)
            futures.release(self._reactor.scheduler, key)

    async def _write_or_complain(self, end: Ended) -> None:
        for tries in range(TRIES):
            try:
                await self._journal.write(end)
                return
            except JournalError as error:
                logger.warning("The end of request %s is not written: %s", end.request_id, error)
            await asyncio.sleep(BACKOFF_S * 2**tries)


def _nothing(_: object) -> None:
    """A question that only waits for its turn."""


def _failure(opening: asyncio.Task[None]) -> BaseException | None:
    return opening.exception() if opening.done() and not opening.cancelled() else None


def _log_failure(opening: asyncio.Task[None]) -> None:
    if (error := _failure(opening)) is not None:
        logger.error("Nothing is accepted: %s", error)
