"""A latency that was never measured, from those of its neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elastic_dit.cost import LatencyCurve, LatencyLaw, Sample
from elastic_dit.request import Stage
from elastic_dit.rib.latency import Latency, LatencyKey

__all__ = ["Estimator"]


class Estimator:
    """Seconds of one stage of one model on one GPU kind, for any size and degree.

    Between measured sizes of the asked degree the time is interpolated (`LatencyCurve`). Where
    one size alone was measured, or none at that degree, a law fitted over all degrees
    (`LatencyLaw`) tells how time grows from there. An encoder only sees text of one padded length,
    so all its sizes are one.

    Parameters
    ----------
    neighbours : sequence of Latency
        At least one, all of one stage.

    Examples
    --------
    >>> def row(width, dop, seconds):
    ...     key = LatencyKey("m", Stage.DIT, width, 10, 1, False, dop, "virtual")
    ...     return Latency(key=key, seconds=seconds)
    >>> estimator = Estimator([row(10, 1, 1.0), row(30, 1, 3.0), row(10, 2, 0.5)])
    >>> estimator(row(20, 1, 0).key), round(estimator(row(20, 2, 0).key), 3)
    (2.0, 1.0)
    """

    def __init__(self, neighbours: Sequence[Latency]) -> None:
        self._flat = neighbours[0].key.stage is Stage.ENCODER
        by_dop: defaultdict[int, defaultdict[float, list[float]]]
        by_dop = defaultdict(lambda: defaultdict(list))
        for latency in neighbours:
            by_dop[latency.key.dop][self._work(latency.key)].append(latency.seconds)
        points = {
            dop: [(work, sum(each) / len(each)) for work, each in sizes.items()]
            for dop, sizes in by_dop.items()
        }
        self._curves = {dop: LatencyCurve(of_dop) for dop, of_dop in points.items()}
        samples = [
            Sample(work, dop, seconds)
            for dop, of_dop in points.items()
            for work, seconds in of_dop
            if seconds > 0
        ]
        self._law = LatencyLaw.fit(samples) if samples else None
        self.setup_s = sum(latency.setup_s for latency in neighbours) / len(neighbours)

    def __repr__(self) -> str:
        return f"<Estimator DoP {', '.join(map(str, sorted(self._curves)))}>"

    def __call__(self, key: LatencyKey) -> float:
        """Seconds that the stage should take."""
        work = self._work(key)
        curve = self._curves.get(key.dop)
        if curve is not None and (self._flat or len(curve.sizes) > 1):
            return curve(work)
        if self._law is None:
            return 0.0
        seconds = self._law.seconds(work, key.dop)
        if curve is None:
            return seconds
        [known], [taken] = curve.sizes, curve.seconds
        return seconds * taken / self._law.seconds(known, key.dop)

    def _work(self, key: LatencyKey) -> float:
        return 1.0 if self._flat else float(key.pixels)
