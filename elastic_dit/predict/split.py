"""GPUs split among the stages, one stage each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Self

from elastic_dit.predict.workload import Workload, check_gpus
from elastic_dit.request import Stage

__all__ = ["Split", "balanced_split", "neighbours"]


@dataclass(frozen=True, slots=True)
class Split:
    """Which kinds of GPU hold which stage.

    Attributes
    ----------
    kinds : tuple of tuple of str
        Per stage, in the order of `Stage`, the kind of each of its GPUs, sorted.

    Examples
    --------
    >>> split = Split.of({"A10": 1}, {"A10": 2, "H100": 4}, {"A10": 1})
    >>> split
    Split(1:6:1)
    >>> split.counts[Stage.DIT]
    6
    """

    kinds: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, *by_stage: Mapping[str, int]) -> Self:
        """From the number of GPUs by kind for each stage, in the order of `Stage`."""
        return cls(
            tuple(
                tuple(kind for kind in sorted(gpus) for _ in range(gpus[kind])) for gpus in by_stage
            )
        )

    def __repr__(self) -> str:
        return f"Split({self})"

    def __str__(self) -> str:
        return ":".join(str(len(kinds)) for kinds in self.kinds)

    @property
    def counts(self) -> dict[Stage, int]:
        """GPUs per stage."""
        return {stage: len(kinds) for stage, kinds in zip(Stage, self.kinds, strict=True)}

    def rates_hz(self, workload: Workload) -> dict[Stage, float]:
        """Requests per second that each needed stage can serve."""
        return {
            stage: sum(workload.speeds.get(kind, 1.0) for kind in kinds)
            / workload.stage_seconds[stage]
            for stage, kinds in zip(Stage, self.kinds, strict=True)
            if stage in workload.needed
        }

    def moved(self, giver: Stage, taker: Stage, workload: Workload) -> Self:
        """The split after `giver` gives its slowest GPU to `taker`."""
        held = dict(zip(Stage, self.kinds, strict=True))
        slowest = min(held[giver], key=lambda kind: (workload.speeds.get(kind, 1.0), kind))
        left = list(held[giver])
        left.remove(slowest)
        held[giver] = tuple(left)
        held[taker] = tuple(sorted((*held[taker], slowest)))
        return type(self)(tuple(held.values()))


def balanced_split(workload: Workload, gpus: Mapping[str, int]) -> Split:
    """Give every GPU in turn to the stage of the lowest service rate, the fastest kinds first.

    For one kind that is the optimum (the least rate is only raised by a GPU at the bottleneck),
    also in the second least rate, and so on; for several it is the usual greedy schedule, since
    the optimum is a partition problem.

    Parameters
    ----------
    workload : Workload
    gpus : mapping of str to int
        By kind.

    Raises
    ------
    ConfigError
        As `check_gpus`.
    """
    check_gpus(workload, gpus)
    seconds = {stage: workload.stage_seconds[stage] for stage in workload.needed}
    power = dict.fromkeys(seconds, 0.0)
    held: dict[Stage, list[str]] = {stage: [] for stage in Stage}
    for kind in sorted(gpus, key=lambda kind: (-workload.speeds.get(kind, 1.0), kind)):
        for _ in range(gpus[kind]):
            slowest = min(seconds, key=lambda s: (power[s] / seconds[s], -seconds[s]))
            held[slowest].append(kind)
            power[slowest] += workload.speeds.get(kind, 1.0)
    return Split(tuple(tuple(sorted(kinds)) for kinds in held.values()))


def neighbours(split: Split, workload: Workload, moves: int) -> Iterator[Split]:
    """Every split that takes up to `moves` GPUs to reach, the given one first, each once.

    No needed stage is left without a GPU, and no other stage gets one.

    Examples
    --------
    >>> alike = Workload(rate_hz=1.0, stage_seconds=dict.fromkeys(Stage, 1.0))
    >>> split = balanced_split(alike, {"": 4})
    >>> [str(each) for each in neighbours(split, alike, 1)]
    ['2:1:1', '1:2:1', '1:1:2']
    """
    seen = {split}
    reached = [split]
    yield split
    for _ in range(moves):
        fresh = []
        for each in reached:
            counts = each.counts
            for giver, taker in permutations(workload.needed, 2):
                after = each.moved(giver, taker, workload) if counts[giver] > 1 else each
                if after not in seen:
                    seen.add(after)
                    fresh.append(after)
                    yield after
        reached = fresh
