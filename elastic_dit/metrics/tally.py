"""Counts and histograms that only ever grow, as plain data that travels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from elastic_dit.metrics.catalogue import Metric

__all__ = ["OTHER", "Histogram", "Readings", "Tally"]

Labels = tuple[str, ...]

MAX_SERIES = 1000
"""Label values of one metric; what would be one more is counted under `OTHER`."""
OTHER = "other"


@dataclass(slots=True)
class Histogram:
    """How many values lie in each bucket.

    Attributes
    ----------
    bounds : tuple of float
        Upper bounds, included.
    counts : list of int
        Per bucket, one more than there are bounds.
    total : float
        Sum of all values.

    Examples
    --------
    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (0.5, 1.0, 7.0):
    ...     histogram.add(value)
    >>> histogram.counts, histogram.total
    ([2, 0, 1], 8.5)
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Readings:
    """Metrics at one moment, by name and labels.

    Attributes
    ----------
    values : list of (str, tuple of str, float)
        Counters and gauges.
    histograms : list of (str, tuple of str, list of int, float)
        Name, labels, counts per bucket and sum.
    """

    values: list[tuple[str, Labels, float]] = field(default_factory=list)
    histograms: list[tuple[str, Labels, list[int], float]] = field(default_factory=list)

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Add the reading of a gauge or a counter kept elsewhere."""
        self.values.append((metric.name, labels, float(value)))

    def __add__(self, other: Readings) -> Readings:
        return Readings(self.values + other.values, self.histograms + other.histograms)

    def to_wire(self) -> dict[str, Any]:
        """Plain msgpack-able form.

        >>> from elastic_dit.metrics.catalogue import PLAN_EPOCH
        >>> readings = Readings()
        >>> readings.put(PLAN_EPOCH, 3)
        >>> Readings.from_wire(readings.to_wire()) == readings
        True
        """
        return {
            "values": [[name, list(labels), value] for name, labels, value in self.values],
            "histograms": [
                [name, list(labels), list(counts), total]
                for name, labels, counts, total in self.histograms
            ],
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Iterable[Any]]) -> Readings:
        """Inverse of `to_wire`."""
        return cls(
            [(name, tuple(labels), value) for name, labels, value in wire["values"]],
            [
                (name, tuple(labels), list(counts), total)
                for name, labels, counts, total in wire["histograms"]
            ],
        )


class Tally:
    """Adds up counters and histograms.

    Label values may come from users (a model's name) or their code (an error's type), so one
    metric has at most `MAX_SERIES` combinations of them.

    Examples
    --------
    >>> from elastic_dit.metrics.catalogue import IMAGES
    >>> tally = Tally()
    >>> tally.count(IMAGES, "shapes")
    >>> tally.readings().values
    [('image_num_total', ('shapes',), 1.0)]
    """

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def __repr__(self) -> str:
        return f"<Tally of {len(self._counters) + len(self._histograms)} metrics>"

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter."""
        series = self._counters.setdefault(metric.name, {})
        key = _bounded(series, labels)
        series[key] = series.get(key, 0.0) + by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        series = self._histograms.setdefault(metric.name, {})
        key = _bounded(series, labels)
        if key not in series:
            series[key] = Histogram(metric.buckets)
        series[key].add(value)

    def readings(self) -> Readings:
        """Everything so far."""
        return Readings(
            [
                (name, labels, value)
                for name, series in self._counters.items()
                for labels, value in series.items()
            ],
            [
                (name, labels, list(histogram.counts), histogram.total)
                for name, series in self._histograms.items()
                for labels, histogram in series.items()
            ],
        )


def _bounded(series: dict[Labels, Any], labels: Labels) -> Labels:
    if labels in series or len(series) < MAX_SERIES:
        return labels
    return (OTHER,) * len(labels)
