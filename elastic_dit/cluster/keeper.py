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
from typing import TYPE_CHECKING, Any

from elastic_dit.cluster import futures
from elastic_dit.cluster.background import Background
from elastic_dit.cluster.file_calls import BACKOFF_S, TRIES, FileCalls
from elastic_dit.config import JournalConfig
from elastic_dit.errors import AdmissionRefused, JournalError, ResultGone
from elastic_dit.events import Cancelled, Complete, Fail, RequestAccepted, ResultLost, StartStage
from elastic_dit.journal.entry import Accepted, Ended, Entry, Forgotten, Started
from elastic_dit.journal.journal import Page
from elastic_dit.journal.results import ResultStore
from elastic_dit.journal.sqlite import SqliteJournal
from elastic_dit.journal.writer import JournalWriter
from elastic_dit.request import Stage
from elastic_dit.state import Failure, Phase

if TYPE_CHECKING:
    from elastic_dit.cluster.reactor import Reactor

__all__ = ["RequestKeeper", "result_folder"]

logger = logging.getLogger(__name__)

_MOST_PENDING = 10_000
"""Changes that may wait for the disk; with more, nothing is accepted."""
_PENDING_RETRY_S = 1.0
_SWEEPS_PER_LIFE = 10
"""How often, in a request's time to live, the expired are looked for."""
_LONGEST_SWEEP_S = 60.0
_EXPIRED_AT_ONCE = 500
_SWEEP = "expired requests"


def result_folder(config: JournalConfig) -> str:
    """Where results are kept: as configured, or in a folder beside the journal.

    >>> result_folder(JournalConfig(path="/var/lib/dit/journal.sqlite"))
    '/var/lib/dit/journal.sqlite.results'
    """
    if config.results is not None:
        return config.results
    return f"{Path(config.path or '').absolute()}.results"


class RequestKeeper:
    """The control plane's journal and result store.

    Parameters
    ----------
    reactor : Reactor
    config : JournalConfig
        With a `path`.

    Raises
    ------
    ConfigError
        Where the result store's URL is of no known kind.
    """

    def __init__(self, reactor: Reactor, config: JournalConfig) -> None:
        assert config.path is not None
        path = config.path
        self._reactor = reactor
        self._config = config
        self._results = ResultStore(result_folder(config))
        self._files = FileCalls(reactor, self._results.url)
        self._journal = JournalWriter(lambda: SqliteJournal(path))
        self._ends = Background()
        self._others = Background()
        self._begun: dict[str, tuple[int, Stage]] = {}
        self._restored: set[str] = set()
        self._swept_at = reactor.clock()
        self._is_suspended = False
        self._opening = asyncio.create_task(self._open())
        self._opening.add_done_callback(_log_failure)

    def __repr__(self) -> str:
        return f"<RequestKeeper {self._journal!r}, {self._results!r}>"

    # -- life
    async def ready(self) -> None:
        """Wait until the requests of the life before are back.

        Raises
        ------
        JournalError
            Where the journal cannot be opened: then nothing is accepted.
        """
        await asyncio.shield(self._opening)

    def suspend(self) -> None:
        """The cluster goes down: what ends from now on ends because of that, and runs again."""
        self._is_suspended = True

    async def close(self) -> None:
        """Write what is to be written, and let go of the journal."""
        self.suspend()
        self._opening.cancel()
        await asyncio.wait({self._opening})
        await self._ends.close()
        await self._others.close()
        await self._journal.close()

    async def _open(self) -> None:
        entries = await self._journal.read(lambda journal: journal.begin_life())
        began = {entry.request_id for entry in entries if entry.attempts}
        kept = began and began & await asyncio.to_thread(lambda: set(self._results.ids()))
        for entry in entries:
            self._resume(entry, is_kept=entry.request_id in kept)
        if entries:
            text = "%d requests of an earlier life go on; results of %d more were there already"
            logger.warning(text, len(entries) - len(kept), len(kept))

    def _resume(self, entry: Entry, is_kept: bool) -> None:
        """Queue a request again, unless its result is there or it took the cluster down."""
        if is_kept:
            self._write_end_of(entry, Phase.COMPLETED, has_result=True)
        elif entry.restarts >= self._reactor.config.control.max_attempts:
            message = f"the cluster went down {entry.restarts} times while it ran"
            stage = entry.stage or Stage.ENCODER
            failure = Failure(error_type="ClusterLost", message=message, stage=stage)
            self._write_end_of(entry, Phase.FAILED, failure=failure)
        else:
            futures.hold(self._reactor.scheduler, entry.request_id)
            self._reactor.observe(
                RequestAccepted(
                    request=entry.request,
                    dops=entry.dops,
                    owner=entry.owner,
                    attempt=entry.attempts + 1,
                    age_s=max(0.0, time.time() - entry.accepted_at),
                )
            )

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
        return None if finished_at is None else finished_at + self._config.ttl_s

    # -- what happens
    async def accept(self, entries: Sequence[Entry]) -> None:
        """Write accepted requests down; on return they, and those accepted before, are safe.

        Raises
        ------
        JournalError
        """
        writes = [self._journal.write(Accepted(entry)) for entry in entries]
        await self._journal.read(_nothing)
        for write in writes:
            await write

    def check_room(self) -> None:
        """Refuse to accept more while the disk does not keep up.

        Raises
        ------
        AdmissionRefused
        """
        pending = len(self._journal)
        if pending >= _MOST_PENDING:
            raise AdmissionRefused(f"{pending} changes wait for the disk", _PENDING_RETRY_S)

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

    async def forget(self, request_id: str) -> None:
        """Forget a request that is over, its result first.

        Raises
        ------
        JournalError
        """
        await asyncio.to_thread(self._delete_results, (request_id,))
        await self._journal.write(Forgotten(request_id))

    async def settled(self, request_id: str) -> None:
        """Wait until the end of a request, if it has come, is written and told."""
        await self._ends.settled(request_id)

    def tick(self, now: float) -> None:
        """Forget what has expired, now and then."""
        every_s = min(self._config.ttl_s / _SWEEPS_PER_LIFE, _LONGEST_SWEEP_S)
        if now - self._swept_at >= every_s and _SWEEP not in self._others:
            self._swept_at = now
            self._others.begin(_SWEEP, self._sweep())

    # -- ends
    async def _write_end(self, command: Complete | Fail | Cancelled) -> None:
        key = command.request_id
        has_result = False
        if isinstance(command, Complete):
            kept = await self._files.keep(command)
            if kept is None:
                self._reactor.observe(ResultLost(request_id=key))
                return
            has_result = kept
        attempts, _ = self._begun.pop(key, (0, None))
        await self._write_or_complain(_ended(command, attempts, has_result))
        # Where its worker died just now, the file is read.
        if self._reactor.conclude(command) or await self._restore_or_remake(key):
            futures.release(self._reactor.scheduler, key)

    async def _write_or_complain(self, ended: Ended) -> None:
        for tries in range(TRIES):
            try:
                await self._journal.write(ended)
                return
            except JournalError as error:
                logger.warning("The end of request %s is not written: %s", ended.request_id, error)
            await asyncio.sleep(BACKOFF_S * 2**tries)

    def _write_end_of(self, entry: Entry, phase: Phase, **how: Any) -> None:
        self._journal.write(
            Ended(
                request_id=entry.request_id,
                phase=phase,
                finished_at=entry.finished_at or time.time(),
                attempts=entry.attempts,
                **how,
            )
        )

    # -- from the journal to a client
    def owns(self, key: object) -> bool:
        """Whether a Dask key is of a request that ended in the journal."""
        return key in self._restored

    def forget_key(self, key: str) -> None:
        """No client wants such a request any more."""
        self._restored.discard(key)

    def adopt(self, key: str) -> None:
        """A client wants a request that ended in the journal."""
        self._restored.add(key)

    def bring_back(self, entry: Entry) -> None:
        """Give a kept result to those who wait for it."""
        if entry.request_id not in self._others:
            self._others.begin(entry.request_id, self._restore(entry))

    def result_lost(self, key: str) -> None:
        """A result went with its worker while clients wait for it."""
        self._others.begin(key, self._give_again(key))

    async def _give_again(self, key: str) -> None:
        await self._restore_or_remake(key)

    async def _restore_or_remake(self, key: str) -> bool:
        """Read a lost result's file; where there is none, False, and the request runs again."""
        entry = (await self.find([key])).get(key)
        if entry is not None and entry.has_result:
            await self._restore(entry)
            return True
        futures.hold(self._reactor.scheduler, key)
        self._reactor.observe(ResultLost(request_id=key))
        return False

    async def _restore(self, entry: Entry) -> None:
        is_there, cause = await self._files.restore(entry.request_id)
        if not is_there:
            # From here on it may be submitted again.
            self._write_end_of(entry, Phase.COMPLETED, records=entry.records)
        if cause:
            gone = ResultGone(entry.request_id, cause)
            futures.fail(self._reactor.scheduler, entry.request_id, gone)

    # -- time to live
    async def _sweep(self) -> None:
        before = time.time() - self._config.ttl_s
        while True:
            over = await self._journal.read(lambda j: j.expired(before, _EXPIRED_AT_ONCE))
            # Files first: a file without an entry would be found by nobody.
            await asyncio.to_thread(self._delete_results, over)
            for request_id in over:
                self._journal.write(Forgotten(request_id))
                self._reactor.controller.forget(request_id)
            if len(over) < _EXPIRED_AT_ONCE:
                return

    def _delete_results(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            try:
                self._results.delete(request_id)
            except OSError as error:
                logger.warning("Cannot delete the result of %s: %s", request_id, error)


def _ended(command: Complete | Fail | Cancelled, attempts: int, has_result: bool) -> Ended:
    """What is written of an end."""
    request_id, now = command.request_id, time.time()
    match command:
        case Complete():
            return Ended(
                request_id=request_id,
                phase=Phase.COMPLETED,
                finished_at=now,
                attempts=attempts,
                records=command.records,
                has_result=has_result,
            )
        case Fail():
            return Ended(
                request_id=request_id,
                phase=Phase.FAILED,
                finished_at=now,
                attempts=command.attempts,
                failure=command.failure,
            )
        case Cancelled():
            return Ended(
                request_id=request_id,
                phase=Phase.CANCELLED,
                finished_at=now,
                attempts=attempts,
                reason=command.reason,
            )


def _nothing(_: object) -> None:
    """A question that only waits for its turn."""


def _log_failure(opening: asyncio.Task[None]) -> None:
    if not opening.cancelled() and (error := opening.exception()) is not None:
        logger.error("Nothing is accepted: %s", error)
