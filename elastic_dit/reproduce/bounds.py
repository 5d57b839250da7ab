"""How good can any schedule be? Lower bounds, loose but certain.

*Mean latency.* Every request takes at least its *work*: its GPU-seconds where every stage runs on
the number of GPUs on which it takes fewest. Give a cluster of G GPUs away for one machine that does
G GPU-seconds of work per second and can be shared out at will: whatever the cluster can do, that
machine can do as well. On one machine nothing has a lower mean latency than the shortest remaining
work first, so the mean under that rule bounds the mean of every schedule of the cluster. A request
also takes at least the time of its fastest chain of stages, whatever else happens; the larger of
the two means is the bound.

It is loose because the one machine works on a single request at full efficiency with all GPUs,
while real requests lose efficiency with every doubling of the DoP, and because the two means are
bounds one by one and not together.

*Cost.* The sum of the requests' work: reached by DoP 1 for each, at whatever latency.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from elastic_dit.cost import CostModel
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.simulate.workload import Arrival

__all__ = ["fastest_s", "least_gpu_s", "mean_bound_s", "srpt_mean_s"]


def mean_bound_s(arrivals: Sequence[Arrival], cost: CostModel, gpus: int) -> float:
    """No schedule on so many GPUs has a lower mean latency, seconds.

    Parameters
    ----------
    arrivals : sequence of Arrival
        At least one.
    cost : CostModel
    gpus : int
    """
    work = [(arrival.at_s, least_gpu_s(arrival.request, cost) / gpus) for arrival in arrivals]
    fastest = [fastest_s(arrival.request, cost, gpus) for arrival in arrivals]
    return max(srpt_mean_s(work), sum(fastest) / len(fastest))


def srpt_mean_s(jobs: Sequence[tuple[float, float]]) -> float:
    """Mean latency under shortest remaining time first, on one machine that may be shared.

    Parameters
    ----------
    jobs : sequence of (float, float)
        Arrival and length, seconds.

    Examples
    --------
    The short one comes while the long one runs, and goes first: 2 s and 6 s.

    >>> srpt_mean_s([(0.0, 4.0), (1.0, 2.0)])
    4.0
    """
    waiting: list[tuple[float, float]] = []
    total_s = now = 0.0
    for at_s, length_s in [*sorted(jobs), (float("inf"), 0.0)]:
        while waiting and now < at_s:
            left_s, arrived_at = heapq.heappop(waiting)
            if now + left_s > at_s:
                heapq.heappush(waiting, (left_s - (at_s - now), arrived_at))
                break
            now += left_s
            total_s += now - arrived_at
        now = at_s
        heapq.heappush(waiting, (length_s, at_s))
    return total_s / len(jobs)


def least_gpu_s(request: GenerationRequest, cost: CostModel) -> float:
    """GPU-seconds of a request where every stage runs on the DoP that needs fewest."""
    dops = cost.allowed_dops(request)
    dit = min(dop * cost.stage_seconds(request, Stage.DIT, dop) for dop in dops)
    return dit + _alone_s(request, cost)


def fastest_s(request: GenerationRequest, cost: CostModel, gpus: int) -> float:
    """Seconds of a request that has the cluster to itself, each stage at its fastest DoP."""
    dops = [dop for dop in cost.allowed_dops(request) if dop <= gpus]
    dit = min(cost.stage_seconds(request, Stage.DIT, dop) for dop in dops)
    return dit + _alone_s(request, cost)


def _alone_s(request: GenerationRequest, cost: CostModel) -> float:
    """Encoder and decoder, on one GPU each."""
    return cost.stage_seconds(request, Stage.ENCODER) + cost.stage_seconds(request, Stage.DECODER)
