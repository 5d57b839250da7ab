"""Several stages on one GPU where they fit: the placement that serves most, by integer programming.

With ``T`` seconds of stage k on GPU kind c, ``m`` requests for it out of all, and for every class
of alike GPUs (kind, memory, what they hold) the number n of them that shall hold the set S and
their time y spent on stage k of it::

    maximise    lambda * W * H  -  sum over classes and sets of n * load(S - held)
    subject to  sum y / T >= lambda * m            for each stage k
                sum over k in S of y <= n          for each class and set S
                sum over S of n = GPUs             for each class
                sum of n with k in S >= 1          for each stage k
                weights(S) + largest activation(S) <= memory

lambda is the throughput, requests per second; ``W`` the mean GPU-seconds of a request and ``H`` the
time in which a move must earn itself back, so that both terms of what is maximised are GPU-seconds:
work done within H more than now, and time lost to loads. DisagFusion's exclusive stages are the
case in which S has one stage (its constraints: sum of g at most G, weights + activations at most
memory, throughput = min g / T).

GPUs that are alike are counted, not named: the programme has some tens of variables whatever the
size of the cluster, and no symmetric solutions to search through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from elastic_dit.cost import fits
from elastic_dit.request import StageKey
from elastic_dit.state import GpuId

__all__ = ["Demand", "PackGpu", "Packing", "StageNeed", "pack", "throughput_hz"]

_MOST_TOGETHER = 4
"""Stages that one GPU may hold, …"""
_MOST_SETS = 50
"""… fewer where these make more sets than so many: with three models two."""
_EXACT = 500
"""Variables up to which the very best placement is sought: that takes some hundredths of a second,
and one model on two kinds of GPU is well within."""
_GAP = 0.01
"""Beyond that, how far from the best it may be: the last hundredth takes nearly all the time."""
_NODES = 50
"""And how many branches are looked at: some seconds for three models."""
_CHOICE_S = 1.0
"""GPU-seconds that it is worth to hold a stage on a GPU more. The programme knows no queues: where
a stage costs next to nothing to hold (a decoder's weights load in 0.1 s), a request waits less the
more GPUs can take it, and may stay where its tensors are."""

Residency = frozenset[StageKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeed:
    """One stage of one model.

    Attributes
    ----------
    seconds : mapping of str to float
        Mean time of one request for it, by GPU kind, above 0; a kind that is missing cannot run
        it. Empty where nothing is asked of it but to be there.
    share : float
        Requests for it, out of all requests.
    load_s : float
        Time to load it.
    weights_bytes : int or None
        None where not known: then it shares a GPU with nothing.
    activation_bytes : int or None
        Most beside the weights while it works; None where not known.
    """

    seconds: Mapping[str, float]
    share: float = 1.0
    load_s: float = 0.0
    weights_bytes: int | None = None
    activation_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackGpu:
    """One GPU.

    Attributes
    ----------
    gpu : int
    kind : str
    memory_bytes : int
        0 where not known: then it holds one stage.
    held : frozenset of StageKey
        What it holds or is to hold.
    unable : frozenset of StageKey
        What it could not load.
    free_in_s : float
        Of GPUs that are alike, those are changed first that are free soonest.
    """

    gpu: GpuId
    kind: str = ""
    memory_bytes: int = 0
    held: Residency = frozenset()
    unable: Residency = frozenset()
    free_in_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of the GPUs.

    Attributes
    ----------
    needs : mapping of StageKey to StageNeed
    earn_back_s : float
        H above.
    reserve : float
        Part of each GPU's memory kept free for activations that are not known.
    together : int
        Most stages on one GPU; 1 for exclusive stages.
    """

    needs: Mapping[StageKey, StageNeed]
    earn_back_s: float = 300.0
    reserve: float = 0.0
    together: int = _MOST_TOGETHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A placement.

    Attributes
    ----------
    residency : dict of int to frozenset of StageKey
    throughput_hz : float
        Requests per second that it can serve at most.
    load_s : float
        GPU-seconds of loads to get there.
    """

    residency: dict[GpuId, Residency] = field(default_factory=dict)
    throughput_hz: float = 0.0
    load_s: float = 0.0


def pack(gpus: Sequence[PackGpu], demand: Demand) -> Packing | None:
    """The best placement.

    Returns
    -------
    Packing or None
        None where no placement holds every stage somewhere.

    Examples
    --------
    >>> from elastic_dit.request import Stage
    >>> encoder, dit, decoder = (StageKey("m", stage) for stage in Stage)
    >>> needs = {
    ...     encoder: StageNeed(seconds={"": 5.45}, weights_bytes=10, activation_bytes=1),
    ...     dit: StageNeed(seconds={"": 18.4}, weights_bytes=14, activation_bytes=4),
    ...     decoder: StageNeed(seconds={"": 9.7}, weights_bytes=1, activation_bytes=6)}
    >>> gpus = [PackGpu(gpu=gpu, memory_bytes=24) for gpu in range(8)]
    >>> round(60 * pack(gpus, Demand(needs=needs)).throughput_hz, 1)
    14.3
    >>> round(60 * pack(gpus, Demand(needs=needs, together=1)).throughput_hz, 1)
    12.4
    """
    return _Programme(gpus, demand).solve() if gpus else None


def throughput_hz(
    gpus: Sequence[PackGpu], demand: Demand, residency: Mapping[GpuId, Residency]
) -> float:
    """Requests per second that a placement can serve at most; 0 where it lacks a stage."""
    fixed = [
        PackGpu(gpu=gpu.gpu, kind=gpu.kind, held=residency.get(gpu.gpu, frozenset()))
        for gpu in gpus
    ]
    found = _Programme(fixed, demand, frozen=True).solve()
    return found.throughput_hz if found else 0.0


_Class = tuple[str, int, Residency, Residency]


class _Programme:
    """The integer programme of one question.

    Its variables are lambda, then n of every class and set, then y of every class, set and stage.
    """

    def __init__(self, gpus: Sequence[PackGpu], demand: Demand, frozen: bool = False) -> None:
        self._demand = demand
        self._keys = sorted(demand.needs)
        self._classes: dict[_Class, list[PackGpu]] = {}
        for gpu in gpus:
            alike = (gpu.kind, gpu.memory_bytes, gpu.held, gpu.unable)
            self._classes.setdefault(alike, []).append(gpu)
        self._columns = [
            (alike, chosen)
            for alike in self._classes
            for chosen in ([alike[2]] if frozen else self._sets(alike))
        ]
        self._times = [
            (column, key)
            for column, (_, chosen) in enumerate(self._columns)
            for key in self._keys
            if key in chosen
        ]

    def _sets(self, alike: _Class) -> Iterator[Residency]:
        """What a GPU of a class may hold."""
        _, memory_bytes, _, unable = alike
        yield frozenset()
        able = [key for key in self._keys if key not in unable]
        for size in range(1, min(self._demand.together, len(able)) + 1):
            if size > 1 and sum(comb(len(able), few) for few in range(size + 1)) > _MOST_SETS:
                return
            for chosen in combinations(able, size):
                if size == 1 or self._fits(chosen, memory_bytes):
                    yield frozenset(chosen)

    def _fits(self, chosen: Sequence[StageKey], memory_bytes: int) -> bool:
        needs = [self._demand.needs[key] for key in chosen]
        weights = [need.weights_bytes for need in needs if need.weights_bytes is not None]
        if len(weights) < len(needs):
            return False
        reserve = int(self._demand.reserve * memory_bytes)
        activations = [
            reserve if need.activation_bytes is None else need.activation_bytes for need in needs
        ]
        return fits(weights, activations, memory_bytes)

    def _load_s(self, alike: _Class, chosen: Residency) -> float:
        return sum(self._demand.needs[key].load_s for key in chosen - alike[2])

    def _wanted(self) -> list[StageKey]:
        """Stages that some GPU can hold: a stage that fails everywhere must not end the rest."""
        return [key for key in self._keys if any(key in chosen for _, chosen in self._columns)]

    def solve(self) -> Packing | None:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        columns, times = len(self._columns), len(self._times)
        cost = self._cost(times)
        rows, low, high = self._constraints(columns, times)
        answer = milp(
            np.array(cost),
            constraints=LinearConstraint(np.array(rows), low, high),
            integrality=np.array([0] + [1] * columns + [0] * times),
            bounds=Bounds(0, np.inf),
            options={} if len(cost) <= _EXACT else {"mip_rel_gap": _GAP, "node_limit": _NODES},
        )
        if answer.x is None:
            return None
        numbers = [round(float(value)) for value in answer.x[1 : 1 + columns]]
        return self._packing(numbers, float(answer.x[0]))

    def _cost(self, times: int) -> list[float]:
        """What is minimised: the work done within the horizon, negative, and the loads."""
        work_s = sum(
            need.share * min(need.seconds.values(), default=0.0)
            for need in self._demand.needs.values()
        )
        loads = [
            self._load_s(alike, chosen) - _CHOICE_S * len(chosen) for alike, chosen in self._columns
        ]
        return [-work_s * self._demand.earn_back_s, *loads, *[0.0] * times]

    def _constraints(
        self, columns: int, times: int
    ) -> tuple[list[list[float]], list[float], list[float]]:
        rows: list[list[float]] = []
        low: list[float] = []
        high: list[float] = []
        infinite = float("inf")

        def add(row: list[float], least: float, most: float) -> None:
            rows.append(row)
            low.append(least)
            high.append(most)

        for key in self._wanted():
            need = self._demand.needs[key]
            if need.seconds:
                served = [-need.share, *[0.0] * columns, *self._rates(key, need)]
                add(served, 0.0, infinite)
            holders = [float(key in chosen) for _, chosen in self._columns]
            add([0.0, *holders, *[0.0] * times], 1.0, infinite)
        for column in range(columns):
            taken = [float(each == column) for each, _ in self._times]
            limit = [-float(each == column) for each in range(columns)]
            add([0.0, *limit, *taken], -infinite, 0.0)
        for alike, members in self._classes.items():
            ours = [float(each == alike) for each, _ in self._columns]
            add([0.0, *ours, *[0.0] * times], len(members), len(members))
        return rows, low, high

    def _rates(self, key: StageKey, need: StageNeed) -> list[float]:
        """Requests per second of a GPU that spends all its time on one stage."""
        rates = []
        for column, stage in self._times:
            kind = self._columns[column][0][0]
            seconds = need.seconds.get(kind)
            rates.append(1.0 / seconds if stage == key and seconds else 0.0)
        return rates

    def _packing(self, numbers: Sequence[int], rate_hz: float) -> Packing:
        residency: dict[GpuId, Residency] = {}
        load_s = 0.0
        for alike, members in self._classes.items():
            wanted = [
                chosen
                for (each, chosen), number in zip(self._columns, numbers, strict=True)
                if each == alike
                for _ in range(number)
            ]
            # Those keep what they hold that are busy longest.
            wanted.sort(key=lambda chosen: (chosen != alike[2], sorted(chosen)))
            busiest = sorted(members, key=lambda gpu: (-gpu.free_in_s, gpu.gpu))
            for gpu, chosen in zip(busiest, wanted, strict=True):
                residency[gpu.gpu] = chosen
                load_s += self._load_s(alike, chosen)
        return Packing(residency=residency, throughput_hz=rate_hz, load_s=load_s)
