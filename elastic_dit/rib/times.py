"""A profile as the clock that dispatch policies ask."""

from __future__ import annotations

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.rib.book import LatencyBook
from elastic_dit.rib.latency import LatencyKey

__all__ = ["RibTimes"]


class RibTimes:
    """`elastic_dit.control.view.StageTimes` of a book that may be replaced at any time.

    Parameters
    ----------
    book : LatencyBook, optional
        Empty by default.

    Attributes
    ----------
    book : LatencyBook
    shapes : int
        Grows whenever the book is replaced.
    """

    def __init__(self, book: LatencyBook | None = None) -> None:
        self.book = book or LatencyBook()
        self.shapes = 0

    def __repr__(self) -> str:
        return f"<RibTimes {self.book!r}>"

    def replace(self, book: LatencyBook) -> None:
        """Go by another book from now on."""
        self.book = book
        self.shapes += 1

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """See `StageTimes.seconds`: measured, or estimated from neighbours."""
        found = self.book.find(LatencyKey.of(request, stage, dop, kind))
        return None if found is None else found.seconds
