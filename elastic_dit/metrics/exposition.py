"""Readings as the text that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from elastic_dit.metrics.catalogue import METRICS, Kind, Metric
from elastic_dit.metrics.tally import Readings

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

__all__ = ["CONTENT_TYPE", "expose"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of what `expose` makes."""


def expose(readings: Readings) -> bytes:
    r"""Render readings in Prometheus' text format.

    Parameters
    ----------
    readings : Readings
        Those of a metric that is not in the catalogue (another release's) are left out.

    Returns
    -------
    bytes
        UTF-8. A counter or histogram without readings is left out.

    Examples
    --------
    >>> from elastic_dit.metrics.catalogue import PLAN_EPOCH
    >>> readings = Readings()
    >>> readings.put(PLAN_EPOCH, 3)
    >>> print(expose(readings).decode())
    # HELP elastic_dit_placement_epoch Number of the placement plan in force.
    # TYPE elastic_dit_placement_epoch gauge
    elastic_dit_placement_epoch 3.0
    <BLANKLINE>
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(readings))
    return bytes(generate_latest(registry))


class _Collected:
    """A prometheus-client collector of readings that are there already."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            family = _family(metric, self._readings)
            if family.samples:
                yield family

    def describe(self) -> Iterator[Family]:
        return iter(())


def _family(metric: Metric, readings: Readings) -> Family:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
        for name, labels, counts, total in readings.histograms:
            if name == metric.name:
                histogram.add_metric(labels, _cumulative(metric, counts), total)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.full_name, metric.help, labels=metric.labels)
    for name, labels, value in readings.values:
        if name == metric.name:
            family.add_metric(labels, value)
    return family


def _cumulative(metric: Metric, counts: list[int]) -> list[tuple[str, float]]:
    """Prometheus' buckets hold what lies at or below their bounds.

    >>> _cumulative(Metric("n", Kind.HISTOGRAM, "", (), (1.0, 2.0)), [2, 0, 1])
    [('1.0', 2), ('2.0', 2), ('+Inf', 3)]
    """
    bounds = [*map(str, metric.buckets), "+Inf"]
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound, count in zip(bounds, counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets
