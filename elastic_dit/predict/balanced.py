"""The closed form: instance counts that balance the stages' service rates (DisagFusion).

Throughput of a pipeline is the least service rate of its stages, ``min g / T``; so the best counts
are those of the largest minimum.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastic_dit.predict.workload import Workload, check_gpus
from elastic_dit.request import Stage

__all__ = ["BalancedRatio", "bottleneck_hz"]


class BalancedRatio:
    """The integer counts of the largest least service rate.

    Every GPU in turn goes to the stage with the lowest service rate, the fastest kinds first. For
    one kind that is the optimum (the least rate is only raised by a GPU at the bottleneck), also
    in the second least rate, and so on; for several it is the usual greedy schedule, since the
    optimum is a partition problem.

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
        check_gpus(workload, gpus)
        seconds = {stage: workload.stage_seconds[stage] for stage in workload.needed}
        counts = dict.fromkeys(Stage, 0)
        power = dict.fromkeys(seconds, 0.0)
        speeds = (
            speed
            for kind, speed in sorted(_speeds(workload, gpus).items(), key=lambda each: -each[1])
            for _ in range(gpus[kind])
        )
        for speed in speeds:
            slowest = min(
                seconds, key=lambda stage: (power[stage] / seconds[stage], -seconds[stage])
            )
            counts[slowest] += 1
            power[slowest] += speed
        return counts


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


def _speeds(workload: Workload, gpus: Mapping[str, int]) -> dict[str, float]:
    return {kind: workload.speeds.get(kind, 1.0) for kind in gpus}
