"""The recent trace: which requests came, and the workload they show."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from elastic_dit.cost import Shaped
from elastic_dit.predict.workload import StageSeconds, Workload
from elastic_dit.request import Stage

__all__ = ["RecentTrace"]

_KEPT = 512
"""Latest requests: enough for the shares of a mix, few enough to be gone through at every look."""


class RecentTrace:
    """The last requests, oldest first.

    Parameters
    ----------
    kept : int
        Most requests remembered.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._arrivals: deque[tuple[float, Shaped]] = deque(maxlen=kept)

    def __repr__(self) -> str:
        return f"<RecentTrace of {len(self._arrivals)}>"

    def __len__(self) -> int:
        return len(self._arrivals)

    def add(self, at_s: float, request: Shaped) -> None:
        """One more request, not before the one before it."""
        self._arrivals.append((at_s, request))

    def forget_before(self, at_s: float) -> None:
        """Keep only what came at `at_s` or later, as after a `elastic_dit.predict.shift.Shift`."""
        while self._arrivals and self._arrivals[0][0] < at_s:
            self._arrivals.popleft()

    def workload(
        self,
        now: float,
        seconds: StageSeconds,
        *,
        stage_bytes: Mapping[Stage, int] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> Workload | None:
        """What the trace shows; None while nothing is known.

        The rate is that of all requests but the first, over the time since the first.

        Parameters
        ----------
        now : float
            Seconds on the clock of `add`.
        seconds, stage_bytes, speeds
            As `Workload.of_requests` takes them.
        """
        if len(self._arrivals) < 2 or not now > self._arrivals[0][0]:
            return None
        requests = [request for _, request in list(self._arrivals)[1:]]
        window_s = now - self._arrivals[0][0]
        return Workload.of_requests(
            requests, seconds, window_s, stage_bytes=stage_bytes, speeds=speeds
        )
