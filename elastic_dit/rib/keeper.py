"""Keeps a running system and its profile in step: read at the start, refined from then on."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from elastic_dit.errors import ElasticDitError
from elastic_dit.rib.aside import Aside
from elastic_dit.rib.book import LatencyBook
from elastic_dit.rib.latency import Latency
from elastic_dit.rib.observations import Observations
from elastic_dit.rib.software import software_version
from elastic_dit.rib.times import RibTimes

if TYPE_CHECKING:
    from elastic_dit.rib.store import RibStore

__all__ = ["RibKeeper"]

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 5.0
"""Longest wait for the last write, seconds."""


class RibKeeper:
    """Gives the profile to the control plane, and what that sees to the profile.

    The database is touched in a thread of its own only, and whatever it does, serving goes on:
    with what the profile said last, or without one.

    Parameters
    ----------
    target : str or None
        See `elastic_dit.rib.store.rib_url`; None for no profile.
    interval_s : float
        Seconds between two writes.

    Attributes
    ----------
    observed : Observations
        Where the controller notes what it sees.
    times : RibTimes
        The profile; empty until it is read.
    """

    def __init__(self, target: str | None, interval_s: float) -> None:
        self.observed = Observations()
        self.times = RibTimes()
        self._target = target
        self._interval_s = interval_s
        self._due_at: float | None = None
        self._aside: Aside | None = None
        self._store: RibStore | None = None
        self._unwritten: deque[Latency] = deque()
        self._complained = False

    def __repr__(self) -> str:
        return f"<RibKeeper {self._store or self._target}: {self.times!r}>"

    def open(self) -> None:
        """Begin to read, in the background."""
        if self._target is not None and self._aside is None:
            self._aside = Aside("elastic-dit-rib")
            self._aside.put(partial(self._exchange, []))

    def tick(self, now: float) -> None:
        """Write what was seen, if it is time; costs nothing else.

        Parameters
        ----------
        now : float
            Seconds on any clock that does not go back.
        """
        if self._aside is None:
            return
        if self._due_at is None:
            self._due_at = now + self._interval_s
        elif now >= self._due_at:
            self._due_at = now + self._interval_s
            self._write(self._aside)

    async def close(self) -> None:
        """Write what is left; bounded."""
        if self._aside is None:
            return
        self._write(self._aside)
        aside, self._aside = self._aside, None
        if not await aside.close(_CLOSE_TIMEOUT_S):
            logger.warning("What was seen last is not in the profile: its database hangs")

    def _write(self, aside: Aside) -> None:
        count = len(self._unwritten)
        self.observed.give_back([self._unwritten.popleft() for _ in range(count)])
        seen = self.observed.take()
        if (seen or self._store is None) and not aside.put(partial(self._exchange, seen)):
            self.observed.give_back(seen)

    # ------------------------------------------------------------------------- in the thread
    def _exchange(self, seen: list[Latency]) -> None:
        try:
            if self._store is None:
                self._store = self._open()
            self._store.refine(seen, software_version())
            self.times.replace(LatencyBook(self._store.load(software_version())))
            self._complained = False
        except Exception as error:
            self._unwritten.extend(seen)
            if not self._complained:
                self._complain(error)

    def _open(self) -> RibStore:
        from elastic_dit.rib.store import RibStore  # here: SQLAlchemy takes a while to import

        assert self._target is not None
        return RibStore(self._target)

    def _complain(self, error: Exception) -> None:
        self._complained = True
        details = None if isinstance(error, ElasticDitError) else error
        logger.warning("Serving goes on without its profile: %s", error, exc_info=details)
