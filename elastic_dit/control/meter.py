"""What happened lately: arrivals, waits, loads. The history that placement policies decide on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from elastic_dit.request import GenerationRequest, StageKey

__all__ = ["Meter", "slope"]


class Meter:
    """Arrivals and waits of the latest seconds; O(1) for each.

    Parameters
    ----------
    window_s : float
        Seconds that waits are kept.
    arrivals_kept : int
        Latest arrivals kept, however long ago.

    Attributes
    ----------
    accepted_total : int
        Requests that ever came.
    """

    def __init__(self, window_s: float, arrivals_kept: int) -> None:
        self.window_s = window_s
        self.accepted_total = 0
        self._arrivals: deque[tuple[float, GenerationRequest]] = deque(maxlen=arrivals_kept)
        self._waits: dict[StageKey, deque[tuple[float, float]]] = {}
        self._load_s: dict[StageKey, float] = {}
        self._weights_bytes: dict[StageKey, int] = {}

    def __repr__(self) -> str:
        return f"<Meter of {self.window_s:g} s, {len(self._arrivals)} arrivals>"

    def accepted(self, request: GenerationRequest, now: float) -> None:
        """A new request was accepted."""
        self.accepted_total += 1
        self._arrivals.append((now, request.without_image_data()))

    def started(self, key: StageKey, waited_s: float, now: float) -> None:
        """A stage was started for a request that had waited for it."""
        waits = self._waits.get(key)
        if waits is None:
            waits = self._waits[key] = deque()
        waits.append((now, waited_s))
        self._forget_before(waits, now - self.window_s)

    def loaded(self, key: StageKey, seconds: float, nbytes: int) -> None:
        """A stage was loaded; its weights take so many bytes, 0 where that is not known."""
        self._load_s[key] = seconds
        if nbytes:
            self._weights_bytes[key] = nbytes

    @property
    def arrivals(self) -> Sequence[tuple[float, GenerationRequest]]:
        """Latest arrivals, with their times, the oldest first."""
        return self._arrivals

    def waits(self, key: StageKey, now: float) -> Sequence[tuple[float, float]]:
        """Starts of a stage within the window: when, and how long the request had waited."""
        waits = self._waits.get(key)
        if waits is None:
            return ()
        self._forget_before(waits, now - self.window_s)
        return waits

    def load_s(self, key: StageKey) -> float | None:
        """Seconds of the last load of a stage; None before the first."""
        return self._load_s.get(key)

    def weights_bytes(self, key: StageKey) -> int | None:
        """Weights of a stage as an engine measured them; None where none has."""
        return self._weights_bytes.get(key)

    @staticmethod
    def _forget_before(waits: deque[tuple[float, float]], start: float) -> None:
        while waits and waits[0][0] < start:
            waits.popleft()


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of y over x; 0 of fewer than two different x.

    >>> slope([(0.0, 1.0), (2.0, 5.0)]), slope([(1.0, 4.0)])
    (2.0, 0.0)
    """
    if not points:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
