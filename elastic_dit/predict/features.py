"""What a split is judged by: numbers without units, alike for fast models and slow ones."""

from __future__ import annotations

import math
import statistics

from elastic_dit.predict.split import Split
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage

__all__ = ["FEATURES", "bound_hz", "queueing_s", "split_features"]

_PER_STAGE = ("slack", "gpus", "variation", "tail", "kinds", "wait")
FEATURES = ("demand", *(f"{stage}_{name}" for stage in Stage for name in _PER_STAGE))
"""Names of what `split_features` gives."""

_MOST_SLACK = 1.5
"""Log of the service rate over the bottleneck's, above which a stage is never felt."""
_DEMAND = (0.3, 1.5)
"""Arrivals over the bottleneck's rate; beyond these a cluster is idle, or as full as can be."""
_FULL = 0.98
"""Utilisation at which queueing formulas are still asked; at 1 they give infinity."""


def bound_hz(workload: Workload, split: Split) -> float:
    """No split serves more: the slowest stage's rate, or the rate of arrivals where that is less.

    A workload of no known arrivals counts as one that keeps every queue full.
    """
    least = min(split.rates_hz(workload).values())
    return min(least, workload.rate_hz) if workload.rate_hz else least


def queueing_s(rate_hz: float, seconds: float, variation: float, servers: int) -> float:
    """Mean wait of an M/G/c queue, by Sakasegawa's and Allen and Cunneen's approximations.

    Parameters
    ----------
    rate_hz : float
        Arrivals per second; where the servers cannot keep up, as if they just could.
    seconds, variation : float
        Mean service time, and its standard deviation over mean.
    servers : int

    Examples
    --------
    >>> queueing_s(0.5, 1.0, 1.0, 1)  # M/M/1: rho / (1 - rho)
    1.0
    """
    rho = min(rate_hz * seconds / servers, _FULL)
    crowding = math.pow(rho, math.sqrt(2 * (servers + 1)) - 1)
    waiting = crowding / (servers * (1 - rho))
    return seconds * waiting * (1 + variation**2) / 2


def split_features(workload: Workload, split: Split) -> list[float]:
    """One row, in the order of `FEATURES`.

    ``demand``: arrivals over the bottleneck's service rate. Per stage, ``slack``: log of its
    service rate over the bottleneck's; ``gpus``: one over their number; ``variation`` and
    ``tail``: standard deviation over mean, and largest over mean, of its seconds in the mix;
    ``kinds``: standard deviation over mean of its GPUs' speeds; ``wait``: `queueing_s` over all
    stages' seconds.

    Parameters
    ----------
    workload : Workload
    split : Split
    """
    least = min(split.rates_hz(workload).values())
    low, high = _DEMAND
    demand = min(max(workload.rate_hz / least, low), high) if workload.rate_hz else high
    row = [demand]
    for stage, kinds in zip(Stage, split.kinds, strict=True):
        row += _of_stage(workload, stage, kinds, least, demand * least)
    return row


def _of_stage(
    workload: Workload, stage: Stage, kinds: tuple[str, ...], least: float, rate_hz: float
) -> list[float]:
    if not kinds or stage not in workload.needed:
        return [_MOST_SLACK, 0.0, 0.0, 1.0, 0.0, 0.0]
    speeds = [workload.speeds.get(kind, 1.0) for kind in kinds]
    seconds, variation = workload.stage_seconds[stage], workload.variation(stage)
    speed = statistics.fmean(speeds)
    wait = queueing_s(rate_hz, seconds / speed, variation, len(kinds))
    return [
        min(math.log(sum(speeds) / seconds / least), _MOST_SLACK),
        1 / len(kinds),
        variation,
        max((part.seconds.get(stage, 0.0) for part in workload.mix), default=seconds) / seconds,
        statistics.pstdev(speeds) / speed,
        wait / sum(workload.stage_seconds.values()),
    ]
