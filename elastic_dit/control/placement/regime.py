"""When the workload has changed: DisagFusion's Algorithm 1, lines 6 and 7."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from elastic_dit.control.placement.demand import usual_kind
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.predict.shift import ShiftDetector
from elastic_dit.request import Stage

__all__ = ["Regime"]

_FIRST = 3
"""Arrivals from which a first workload is taken."""
_KNOWN = 16
"""Requests after which something like none of them is news."""
_FAR = math.log(1.5)
"""How far from all before, log of a ratio of stage times, a request must be to be like none."""
_LEAST_S = 1e-3
"""A stage that takes less counts as this."""
_BESIDE_DIT = (Stage.ENCODER, Stage.DECODER)
_NEWS = 2
"""So many in a row are another workload."""
_PATIENCE = 32
"""Requests after one whose times are not known yet that wait for it: who comes first to a new
cluster is part of what is usual there, though nobody knew then what it takes."""


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
        begun = None
        for at, seconds in self._fresh(snapshot):
            shift = self._detector.observe(at, seconds)
            since = shift.since_s if shift is not None else self._news_since(at, seconds)
            if since is not None:
                self._begin()
                begun = since
        if begun is None and self._since is None and len(snapshot.arrivals) >= _FIRST:
            begun = snapshot.arrivals[0].at
        if begun is not None:
            self._since = begun
        return begun is not None

    def _fresh(self, snapshot: ClusterSnapshot) -> Iterator[tuple[float, Mapping[Stage, float]]]:
        """Arrivals not looked at before, with what their stages take.

        One whose times are not known yet is waited for, and those behind it, for a while.
        """
        kind = usual_kind(snapshot)
        first = snapshot.accepted - len(snapshot.arrivals)
        self._seen = min(max(self._seen, first), snapshot.accepted)
        for arrival in snapshot.arrivals[self._seen - first :]:
            seconds = snapshot.shapes[arrival.shape].seconds.get(kind, {})
            known = len(seconds) == len(Stage) and sum(seconds.values()) > 0
            if not known and snapshot.accepted - self._seen <= _PATIENCE:
                return
            self._seen += 1
            if known:
                yield arrival.at, seconds

    def _news_since(self, at: float, seconds: Mapping[Stage, float]) -> float | None:
        """When a run of requests like none before began; None where there is no such run."""
        logs = {stage: math.log(max(seconds[stage], _LEAST_S)) for stage in Stage}
        ratios = {stage: logs[Stage.DIT] - logs[stage] for stage in _BESIDE_DIT}
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
