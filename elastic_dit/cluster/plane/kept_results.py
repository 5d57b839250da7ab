"""From the result store to clients: results of requests that are over, read when wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.background import Background
from elastic_dit.cluster.plane.file_calls import FileCalls
from elastic_dit.cluster.plane.resumption import ended
from elastic_dit.errors import JournalError, ResultGone
from elastic_dit.events import ResultLost
from elastic_dit.journal.entry import Entry
from elastic_dit.journal.writer import JournalWriter
from elastic_dit.state import Phase

if TYPE_CHECKING:
    from elastic_dit.cluster.plane.reactor import Reactor

__all__ = ["KeptResults"]


class KeptResults:
    """Brings kept results back into the cluster's memory, one read for all who ask.

    Parameters
    ----------
    reactor : Reactor
    journal : JournalWriter
    files : FileCalls
    """

    def __init__(self, reactor: Reactor, journal: JournalWriter, files: FileCalls) -> None:
        self._reactor = reactor
        self._journal = journal
        self._files = files
        self._wanted: set[str] = set()
        self._reads = Background()

    def __repr__(self) -> str:
        return f"<KeptResults: {len(self._wanted)} wanted, {len(self._reads)} being read>"

    # -- keys of requests that ended before this life, or long ago
    def owns(self, key: object) -> bool:
        """Whether a Dask key is of a request that ended in the journal."""
        return key in self._wanted

    def adopt(self, key: str) -> None:
        """A client wants a request that ended in the journal."""
        self._wanted.add(key)

    def forget_key(self, key: str) -> None:
        """No client wants such a request any more."""
        self._wanted.discard(key)

    # -- reading
    def bring_back(self, entry: Entry) -> None:
        """Give a kept result to those who wait for it."""
        if entry.request_id not in self._reads:
            self._reads.begin(entry.request_id, self._read(entry))

    def lost(self, key: str) -> None:
        """A result went with its worker while clients wait for it."""
        self._reads.begin(key, self._give_again(key))

    async def give_again(self, key: str) -> bool:
        """Read a lost result's file; False where there is none: then the request runs again."""
        scheduler = self._reactor.scheduler
        try:
            entry = (await self._journal.read(lambda journal: journal.find([key]))).get(key)
        except JournalError as error:
            futures.fail(scheduler, key, error)
            return True
        if entry is not None and entry.has_result:
            await self._read(entry)
            return True
        if self._reactor.controller.table.get(key) is None:
            futures.fail(scheduler, key, ResultGone(key, "it went with its worker"))
            return True
        futures.hold(scheduler, key)
        self._reactor.observe(ResultLost(request_id=key))
        return False

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()

    async def _give_again(self, key: str) -> None:
        await self.give_again(key)

    async def _read(self, entry: Entry) -> None:
        is_there, cause = await self._files.restore(entry.request_id)
        if not is_there:
            # From here on it may be submitted again.
            self._journal.write(ended(entry, Phase.COMPLETED, records=entry.records))
        if cause:
            gone = ResultGone(entry.request_id, cause)
            futures.fail(self._reactor.scheduler, entry.request_id, gone)
