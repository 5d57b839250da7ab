"""The queue before one stage of one model."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from elastic_dit.control.record import Order, RequestRecord
from elastic_dit.request import StageKey

__all__ = ["WaitQueue"]


class WaitQueue:
    """Requests that wait for one stage of one model, in the dispatch policy's order.

    Finding a position is O(log n). Adding and removing move a part of a list, which for tens of
    thousands of requests is less work than keeping a tree in Python.

    Attributes
    ----------
    key : StageKey
    ranks : list of tuple
        Of those that wait, ascending.
    """

    def __init__(self, key: StageKey) -> None:
        self.key = key
        self._records: dict[Order, RequestRecord] = {}
        self.ranks: list[Order] = []
        self._unprepared: list[Order] = []
        self._weight = 0.0

    def __repr__(self) -> str:
        return f"<WaitQueue {self.key.model}/{self.key.stage}: {len(self)}>"

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[RequestRecord]:
        return map(self._records.__getitem__, self.ranks)

    @property
    def head(self) -> RequestRecord | None:
        """The first in line."""
        return self._records[self.ranks[0]] if self.ranks else None

    @property
    def next_unprepared(self) -> RequestRecord | None:
        """The first in line whose inputs no GPU was told to pull ahead."""
        return self._records[self._unprepared[0]] if self._unprepared else None

    @property
    def weight(self) -> float:
        """What the policy weighs all of them together."""
        return self._weight

    def position(self, record: RequestRecord) -> int:
        """Requests ahead of this one."""
        return bisect_left(self.ranks, record.rank)

    def add(self, record: RequestRecord) -> None:
        """Queue a request under its rank."""
        self._records[record.rank] = record
        insort(self.ranks, record.rank)
        insort(self._unprepared, record.rank)
        self._weight += record.weight

    def remove(self, record: RequestRecord) -> None:
        """Take a request out."""
        del self._records[record.rank]
        _discard(self.ranks, record.rank)
        _discard(self._unprepared, record.rank)
        # An empty queue weighs nothing, whatever rounding left.
        self._weight = self._weight - record.weight if self._records else 0.0

    def mark_prepared(self, record: RequestRecord, prepared: bool) -> None:
        """Note whether some GPU pulls its inputs ahead."""
        _discard(self._unprepared, record.rank)
        if not prepared and record.rank in self._records:
            insort(self._unprepared, record.rank)


def _discard(ranks: list[Order], rank: Order) -> None:
    """Take a rank out of a sorted list, if it is there."""
    place = bisect_left(ranks, rank)
    if place < len(ranks) and ranks[place] == rank:
        del ranks[place]
