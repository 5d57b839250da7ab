"""Requests that ended long enough ago are forgotten, and their results with them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from elastic_dit.cluster.plane.background import Background
from elastic_dit.journal.entry import Forgotten
from elastic_dit.journal.results import ResultStore
from elastic_dit.journal.writer import JournalWriter

__all__ = ["Expiry"]

logger = logging.getLogger(__name__)

_SWEEPS_PER_LIFE = 10
"""How often, in a request's time to live, the expired are looked for."""
_LONGEST_INTERVAL_S = 60.0
_AT_ONCE = 500


class Expiry:
    """Looks for the expired now and then.

    Parameters
    ----------
    journal : JournalWriter
    results : ResultStore
    ttl_s : float
        Time to live after a request's end, seconds.
    forget : callable
        Told the id of each request that is forgotten.
    now : float
        Seconds on the clock of `tick`.
    """

    def __init__(
        self,
        journal: JournalWriter,
        results: ResultStore,
        ttl_s: float,
        forget: Callable[[str], None],
        now: float,
    ) -> None:
        self._journal = journal
        self._results = results
        self._ttl_s = ttl_s
        self._forget = forget
        self._looked_at = now
        self._looks = Background()

    def __repr__(self) -> str:
        return f"<Expiry after {self._ttl_s:g} s>"

    def tick(self, now: float) -> None:
        """Look, if it is time and nobody looks."""
        every_s = min(self._ttl_s / _SWEEPS_PER_LIFE, _LONGEST_INTERVAL_S)
        if now - self._looked_at >= every_s and not len(self._looks):
            self._looked_at = now
            self._looks.begin("the expired", self._look())

    async def remove(self, request_ids: Sequence[str]) -> None:
        """Forget requests that are over, whether expired or not.

        Raises
        ------
        JournalError
        """
        # Files first: a file without an entry would be found by nobody.
        await asyncio.to_thread(self._delete_results, request_ids)
        for write in [self._journal.write(Forgotten(each)) for each in request_ids]:
            await write
        for request_id in request_ids:
            self._forget(request_id)

    async def close(self) -> None:
        """Look no more."""
        await self._looks.close()

    async def _look(self) -> None:
        before = time.time() - self._ttl_s
        while True:
            over = await self._journal.read(lambda journal: journal.expired(before, _AT_ONCE))
            await self.remove(over)
            if len(over) < _AT_ONCE:
                return

    def _delete_results(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            try:
                self._results.delete(request_id)
            except OSError as error:
                logger.warning("Cannot delete the result of %s: %s", request_id, error)
