"""The queue before one stage of one model."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from elastic_dit.control.record import Order, RequestRecord
from elastic_dit.request import StageKey

__all__ = ["WaitQueue"]


class WaitQueue:
    """Requests that wait for one stage of one model, in the dispatch policy's order.

    Adding, removing and finding a position are O(log n).
    """

    def __init__(self, key: StageKey) -> None:
        self.key = key
        self._records: SortedDict[Order, RequestRecord] = SortedDict()
        self._unprepared: SortedDict[Order, RequestRecord] = SortedDict()
        self._weight = 0.0

    def __repr__(self) -> str:
        return f"<WaitQueue {self.key.model}/{self.key.stage}: {len(self)}>"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._records.values())

    @property
    def head(self) -> RequestRecord | None:
        """The first in line."""
        return self._records.peekitem(0)[1] if self._records else None

    @property
    def next_unprepared(self) -> RequestRecord | None:
        """The first in line whose inputs no GPU was told to pull ahead."""
        return self._unprepared.peekitem(0)[1] if self._unprepared else None

    @property
    def weight(self) -> float:
        """What the policy weighs all of them together."""
        return self._weight

    def position(self, record: RequestRecord) -> int:
        """Requests ahead of this one."""
        return int(self._records.bisect_left(record.rank))

    def add(self, record: RequestRecord) -> None:
        """Queue a request under its rank."""
        self._records[record.rank] = record
        self._unprepared[record.rank] = record
        self._weight += record.weight

    def remove(self, record: RequestRecord) -> None:
        """Take a request out."""
        del self._records[record.rank]
        self._unprepared.pop(record.rank, None)
        # An empty queue weighs nothing, whatever rounding left.
        self._weight = self._weight - record.weight if self._records else 0.0

    def mark_prepared(self, record: RequestRecord, prepared: bool) -> None:
        """Note whether some GPU pulls its inputs ahead."""
        if prepared:
            self._unprepared.pop(record.rank, None)
        elif record.rank in self._records:
            self._unprepared[record.rank] = record
