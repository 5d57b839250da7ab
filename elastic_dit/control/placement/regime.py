"""When the workload has changed: DisagFusion's Algorithm 1, lines 6 and 7."""

from __future__ import annotations

import math
from collections.abc import Mapping

from elastic_dit.control.placement.demand import usual_kind
from elastic_dit.control.snapshot import ArrivalSnapshot, ClusterSnapshot
from elastic_dit.predict.shift import ShiftDetector
from elastic_dit.request import Stage

__all__ = ["Regime"]

_FIRST = 3
"""Arrivals from which a first workload is taken."""
_KNOWN = 16
"""Requests after which something like none of them is news."""
_FAR = math.log(1.5)
"""How far from all before, log of a ratio of stage times, a request must be to be like none."""
_BESIDE_DIT = (Stage.ENCODER, Stage.DECODER)
_NEWS = 2
"""So many in a row are another workload."""


class Regime:
    """Since when requests are as they are now.

    The paper takes the most frequent workload of its history and acts when that is another one
    than before. Here `elastic_dit.predict.shift.ShiftDetector` decides, which a mix of several
    workloads does not confuse; and, sooner, two requests in a row whose stages are in proportions
    far from those of all before them.

    Examples
    --------
    >>> Regime()
    <Regime not begun>
    """

    def __init__(self) -> None:
        self._seen = 0
        self._since: float | None = None
        self._begin()

    def __repr__(self) -> str:
        since = "not begun" if self._since is None else f"since {self._since:.1f} s"
        return f"<Regime {since}>"

    def _begin(self) -> None:
        self._detector = ShiftDetector()
        self._known = 0
        self._range: dict[Stage, tuple[float, float]] = {}
        self._news: list[float] = []

    @property
    def since(self) -> float:
        """Arrival of its first request, seconds on the control plane's clock."""
        return -math.inf if self._since is None else self._since

    def changed(self, snapshot: ClusterSnapshot) -> bool:
        """Whether another regime has begun since the last look; then it is this one."""
        fresh = max(0, min(snapshot.accepted - self._seen, len(snapshot.arrivals)))
        self._seen = snapshot.accepted
        kind = usual_kind(snapshot)
        latest = snapshot.arrivals[len(snapshot.arrivals) - fresh :]
        observed = [self._observe(snapshot, arrival, kind) for arrival in latest]
        begun = [since for since in observed if since is not None]
        if not begun and self._since is None and len(snapshot.arrivals) >= _FIRST:
            begun = [snapshot.arrivals[0].at]
        if begun:
            self._since = begun[-1]
        return bool(begun)

    def _observe(
        self, snapshot: ClusterSnapshot, arrival: ArrivalSnapshot, kind: str
    ) -> float | None:
        """When another regime began, if this arrival shows that one did."""
        seconds = snapshot.shapes[arrival.shape].seconds.get(kind, {})
        if len(seconds) < len(Stage) or min(seconds.values()) <= 0:
            return None
        shift = self._detector.observe(arrival.at, seconds)
        since = shift.since_s if shift is not None else self._news_since(arrival.at, seconds)
        if since is not None:
            self._begin()
        return since

    def _news_since(self, at: float, seconds: Mapping[Stage, float]) -> float | None:
        """When a run of requests like none before began; None where there is no such run."""
        dit = math.log(seconds[Stage.DIT])
        ratios = {stage: dit - math.log(seconds[stage]) for stage in _BESIDE_DIT}
        if self._known >= _KNOWN and self._is_far(ratios):
            self._news.append(at)
            return self._news[0] if len(self._news) >= _NEWS else None
        self._news.clear()
        self._known += 1
        for stage, ratio in ratios.items():
            low, high = self._range.get(stage, (ratio, ratio))
            self._range[stage] = min(low, ratio), max(high, ratio)
        return None

    def _is_far(self, ratios: Mapping[Stage, float]) -> bool:
        return any(
            not self._range[stage][0] - _FAR <= ratio <= self._range[stage][1] + _FAR
            for stage, ratio in ratios.items()
        )
