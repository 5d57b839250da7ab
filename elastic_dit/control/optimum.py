"""Theoretical optimum of DDiT (§4.2.2, Algorithm 1, Appendix A): what a known mix must cost.

Cost is cumulative resource occupancy (eq. 2): GPUs x the seconds they are occupied. GPUs are dealt
to request types in order, each type gets neighbouring GPUs and one DoP, and dynamic programming
finds the cheapest deal. It needs the mix beforehand, so it is a yardstick and no policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elastic_dit.control.block import bandwidth_aware_partition
from elastic_dit.errors import ConfigError

__all__ = [
    "Deal",
    "Occupancy",
    "Optimum",
    "RequestType",
    "batch_occupancy",
    "m_d_1_seconds",
    "m_d_c_seconds",
    "queue_occupancy",
    "theoretical_optimum",
]

Occupancy = Callable[[float, float, int], float]
"""``Occupy(x, d, alpha)``: seconds one GPU is occupied by a type of share x, when each of its alpha
instances needs d seconds for one request; infinite where they cannot keep up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestType:
    """One kind of request in the mix.

    Attributes
    ----------
    share : float
        Its part of all requests, 0 to 1.
    seconds : mapping of int to float
        Execution time of one request by DoP, seconds.
    """

    share: float
    seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """GPUs dealt to one type.

    Attributes
    ----------
    first, gpus : int
        First GPU and how many.
    dop, instances : int
        Degree of parallelism, and instances of it on these GPUs.
    cost_gpu_s : float
        GPU-seconds occupied.
    """

    first: int
    gpus: int
    dop: int
    instances: int
    cost_gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The cheapest deal.

    Attributes
    ----------
    cost_gpu_s : float
        GPU-seconds in all; infinite where no deal keeps up.
    deals : tuple of Deal or None
        One for each type, None for a type of share 0; empty where no deal keeps up.
    """

    cost_gpu_s: float
    deals: tuple[Deal | None, ...]


def batch_occupancy(requests: int) -> Occupancy:
    """Batch model, eq. 3: `requests` wait at the start and no more arrive.

    Examples
    --------
    >>> batch_occupancy(10)(0.5, 3.0, 2)  # five requests on two instances: three rounds
    9.0
    """

    def occupy(share: float, seconds: float, instances: int) -> float:
        # Ten digits: 100 x 0.07 is a little above 7 in floating point and must not be 8.
        return math.ceil(round(requests * share / instances, 10)) * seconds

    return occupy


def queue_occupancy(arrival_rate: float, *, corrected: bool = True) -> Occupancy:
    """Queue model, eq. 6 and 7: requests arrive for ever, Poisson.

    Parameters
    ----------
    arrival_rate : float
        Requests of all types per second.
    corrected : bool
        Halve only the wait in eq. 7; the paper halves the service time too.
    """

    def occupy(share: float, seconds: float, instances: int) -> float:
        if instances == 1:
            return m_d_1_seconds(arrival_rate * share, seconds)
        return m_d_c_seconds(arrival_rate * share, seconds, instances, corrected=corrected)

    return occupy


def m_d_1_seconds(arrival_rate: float, seconds: float) -> float:
    """Mean time in an M/D/1 system (eq. 6), infinite at a utilisation of 1 or more.

    Examples
    --------
    >>> m_d_1_seconds(arrival_rate=0.25, seconds=2.0)
    3.0
    """
    utilisation = arrival_rate * seconds
    if utilisation >= 1:
        return math.inf
    return seconds + utilisation * seconds / (2 * (1 - utilisation))


def m_d_c_seconds(
    arrival_rate: float, seconds: float, servers: int, *, corrected: bool = True
) -> float:
    """Mean time in an M/D/c system, from M/M/c (eq. 7).

    A known approximation halves the *wait* of M/M/c. Eq. 7 as printed halves the whole time in
    the system, service included, which says less than one service time at low load. Factorials
    are exact here; the paper takes Stirling's formula.

    Parameters
    ----------
    arrival_rate : float
        Requests per second.
    seconds : float
        Service time.
    servers : int
    corrected : bool
        False gives eq. 7 as printed.

    Examples
    --------
    >>> round(m_d_c_seconds(1.0, 1.0, 2), 4), round(m_d_c_seconds(1.0, 1.0, 2, corrected=False), 4)
    (1.1667, 0.6667)
    """
    offered = arrival_rate * seconds
    utilisation = offered / servers
    if utilisation >= 1:
        return math.inf
    wait = _probability_of_waiting(offered, servers) * seconds / (servers * (1 - utilisation))
    return seconds + wait / 2 if corrected else (seconds + wait) / 2


def _probability_of_waiting(offered: float, servers: int) -> float:
    """Erlang's C, by the recursion of Erlang's B, which does not overflow."""
    blocking = 1.0
    for busy in range(1, servers + 1):
        blocking = offered * blocking / (busy + offered * blocking)
    utilisation = offered / servers
    return blocking / (1 - utilisation + utilisation * blocking)


def theoretical_optimum(
    types: Sequence[RequestType], *, nodes: int, slots_per_node: int, occupancy: Occupancy
) -> Optimum:
    """Algorithm 1: deal ``nodes * slots_per_node`` GPUs to the types at the least cost.

    A type of share 0 gets no GPU; every other gets at least one. The types keep their order, and
    GPUs that no type needs lie before the first one's (both matter where a group would cross
    nodes).

    Parameters
    ----------
    types : sequence of RequestType
    nodes, slots_per_node : int
        ``m`` and ``n`` of the paper.
    occupancy : Occupancy
        `batch_occupancy` or `queue_occupancy`.

    Raises
    ------
    ConfigError
        Where a share is negative or the shares do not add up to 1.

    Examples
    --------
    Two requests, two GPUs: one each at DoP 1 is cheaper than both together at DoP 2.

    >>> both = RequestType(share=1.0, seconds={1: 4.0, 2: 3.0})
    >>> theoretical_optimum([both], nodes=1, slots_per_node=2,
    ...                     occupancy=batch_occupancy(2)).cost_gpu_s
    8.0
    """
    shares = [kind.share for kind in types]
    if any(share < 0 for share in shares) or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise ConfigError("share", shares, "0 or more each and 1 in all")
    total = nodes * slots_per_node
    served = [kind for kind in types if kind.share > 0]
    # best[i]: cheapest deal of the first i GPUs to the types so far (dp[i][j] of the paper).
    best: list[tuple[float, tuple[Deal, ...]]] = [(0.0, ())] * (total + 1)
    for kind in served:
        best = [_cheapest(best, kind, used, slots_per_node, occupancy) for used in range(total + 1)]
    cost, deals = best[total]
    if math.isinf(cost):
        return Optimum(cost_gpu_s=cost, deals=())
    remaining = iter(deals)
    return Optimum(
        cost_gpu_s=cost,
        deals=tuple(next(remaining) if kind.share > 0 else None for kind in types),
    )


def _cheapest(
    best: Sequence[tuple[float, tuple[Deal, ...]]],
    kind: RequestType,
    used: int,
    slots_per_node: int,
    occupancy: Occupancy,
) -> tuple[float, tuple[Deal, ...]]:
    """``FIND_OPTIMAL_TIME``: the last of the first `used` GPUs go to `kind`."""
    found: tuple[float, tuple[Deal, ...]] = (math.inf, ())
    for gpus in range(1, used + 1):
        before, deals = best[used - gpus]
        if before >= found[0]:
            continue
        for dop, seconds in kind.seconds.items():
            first = used - gpus
            instances = bandwidth_aware_partition(first, gpus, dop, slots_per_node)
            if instances == 0:
                continue
            cost = gpus * occupancy(kind.share, seconds, instances)
            if before + cost < found[0]:
                deal = Deal(first=first, gpus=gpus, dop=dop, instances=instances, cost_gpu_s=cost)
                found = (before + cost, (*deals, deal))
    return found
