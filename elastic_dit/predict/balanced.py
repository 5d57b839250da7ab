"""The closed form: instance counts that balance the stages' service rates (DisagFusion).

Throughput of a pipeline is at most the least service rate of its stages, ``min g / T``; the
closed form takes the counts of the largest such minimum.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastic_dit.predict.split import balanced_split
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage

__all__ = ["BalancedRatio", "bottleneck_hz"]


class BalancedRatio:
    """The counts of `elastic_dit.predict.split.balanced_split`.

    Examples
    --------
    >>> four_steps = Workload(rate_hz=0.1, stage_seconds={
    ...     Stage.ENCODER: 5.45, Stage.DIT: 73.5, Stage.DECODER: 9.7})
    >>> list(BalancedRatio().predict(four_steps, {"A10": 8}).values())
    [1, 6, 1]
    >>> list(BalancedRatio().predict(four_steps, {"A10": 16}).values())
    [1, 13, 2]
    """

    def __repr__(self) -> str:
        return "BalancedRatio()"

    def predict(self, workload: Workload, gpus: Mapping[str, int]) -> Mapping[Stage, int]:
        """See `elastic_dit.predict.workload.RatioPredictor`."""
        return balanced_split(workload, gpus).counts


def bottleneck_hz(workload: Workload, counts: Mapping[Stage, int]) -> float:
    """Requests per second of the slowest stage on GPUs of speed 1: ``min g / T``.

    Examples
    --------
    >>> one_step = Workload(rate_hz=0.1, stage_seconds={
    ...     Stage.ENCODER: 5.45, Stage.DIT: 18.4, Stage.DECODER: 9.7})
    >>> ratio = {Stage.ENCODER: 1, Stage.DIT: 5, Stage.DECODER: 2}
    >>> round(60 * bottleneck_hz(one_step, ratio), 1)
    11.0
    """
    return min(counts[stage] / workload.stage_seconds[stage] for stage in workload.needed)
