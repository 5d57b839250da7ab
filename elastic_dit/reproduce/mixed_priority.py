"""GF-DiT's mixed-priority workloads (arXiv 2606.13501): deadlines met, ours beside listed ones.

Same requests, cost model, hand-over time and percentiles as the listed figures; any class may be
paused or resized at a step boundary, as the listed EDF, TetriServe and SRTF policies do. What
differs: the groups of `elastic` are aligned blocks, which theirs need not be.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elastic_dit._version import __version__
from elastic_dit.data import data_path
from elastic_dit.reproduce.listed import best_listed, read_listed
from elastic_dit.reproduce.runs import Figures, Simulation, simulate_all
from elastic_dit.reproduce.schema import ClassFigures, MixedFigures, MixedReport, Nearness
from elastic_dit.simulate.readers import read_mixed_priority
from elastic_dit.simulate.workload import Arrival

__all__ = [
    "HANDOVER_S",
    "MIXED_POLICIES",
    "OVERLOADED",
    "PROFILES",
    "TWINS",
    "MixedExperiment",
    "MixedWorkload",
    "reproduce_mixed_priority",
]

PROFILES = ("tridentserve", "foreground_burst")
LOADS = ("default", "0.8", "1.0", "1.5")
HANDOVER_S = 0.003
"""Of every change of group, as in the listed runs."""
MIXED_POLICIES = ("edf", "tetriserve", "srtf-1", "srtf-2", "srtf-4", "elastic")
TWINS = {
    "edf": "edf_best_fit",
    "tetriserve": "tetriserve_continuous",
    "srtf-1": "srtf_sp1",
    "srtf-2": "srtf_sp2",
    "srtf-4": "srtf_sp4",
}
"""Our re-implementations, and what they re-implement."""
OVERLOADED = ("tridentserve@1.5", "foreground_burst@1.0", "foreground_burst@1.5")
"""Workloads on which no listed policy meets nine deadlines in ten."""


@dataclass(frozen=True, slots=True)
class MixedWorkload:
    """One of the packaged workloads."""

    profile: str
    load: str
    seed: int

    def arrivals(self) -> Sequence[Arrival]:
        """Read it."""
        name = f"a14b_{self.profile}_seed{self.seed}_load{self.load}.json"
        return read_mixed_priority(data_path(f"mixed_priority/workloads/{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedExperiment:
    """What to run; the default is all of it.

    Attributes
    ----------
    profiles, loads, policies : tuple of str
        ``elastic`` must be among the policies.
    seeds : tuple of int
    """

    profiles: tuple[str, ...] = PROFILES
    loads: tuple[str, ...] = LOADS
    policies: tuple[str, ...] = MIXED_POLICIES
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Their names, ``profile@load``."""
        return tuple(f"{profile}@{load}" for profile in self.profiles for load in self.loads)

    @property
    def runs(self) -> int:
        """Simulations in all."""
        return len(self.workloads) * len(self.policies) * len(self.seeds)


def reproduce_mixed_priority(
    experiment: MixedExperiment | None = None,
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> MixedReport:
    """Run the experiment.

    Parameters
    ----------
    experiment : MixedExperiment, optional
    processes, done
        As in `simulate_all`.
    """
    asked = experiment or MixedExperiment()
    began = time.perf_counter()
    figures = iter(simulate_all(_simulations(asked), processes=processes, done=done))
    ours = {
        workload: {
            policy: _average([next(figures) for _ in asked.seeds]) for policy in asked.policies
        }
        for workload in asked.workloads
    }
    listed = {
        workload: by_policy
        for workload, by_policy in read_listed(asked.seeds).items()
        if workload in ours
    }
    best = {workload: best_listed(listed[workload]) for workload in ours}
    return MixedReport(
        software=f"elastic-dit {__version__}",
        seeds=asked.seeds,
        handover_s=HANDOVER_S,
        mixed_priority=ours,
        listed=listed,
        best_listed=best,
        lead={
            workload: ours[workload]["elastic"].attainment
            - listed[workload][best[workload]].attainment
            for workload in ours
        },
        nearness=_nearness(ours, listed),
        wall_seconds=time.perf_counter() - began,
    )


def _nearness(
    ours: Mapping[str, Mapping[str, MixedFigures]], listed: Mapping[str, Mapping[str, MixedFigures]]
) -> dict[str, Nearness]:
    """Of all twins that are in both, over the workloads."""
    found: dict[str, Nearness] = {}
    for policy, theirs in TWINS.items():
        pairs = {
            workload: (by_policy[policy], listed[workload][theirs])
            for workload, by_policy in ours.items()
            if policy in by_policy and theirs in listed[workload]
        }
        if not pairs:
            continue
        apart = {name: abs(a.attainment - b.attainment) for name, (a, b) in pairs.items()}
        worst = max(apart, key=lambda name: apart[name])
        found[policy] = Nearness(
            listed=theirs,
            attainment=statistics.fmean(apart.values()),
            attainment_max=apart[worst],
            max_workload=worst,
            mean_s=statistics.geometric_mean(a.mean_s / b.mean_s for a, b in pairs.values()),
        )
    return found


def _simulations(asked: MixedExperiment) -> list[Simulation]:
    return [
        Simulation(
            policy=policy,
            workload=MixedWorkload(profile, load, seed),
            cost="mixed-priority",
            handover_s=HANDOVER_S,
        )
        for profile in asked.profiles
        for load in asked.loads
        for policy in asked.policies
        for seed in asked.seeds
    ]


def _average(runs: Sequence[Figures]) -> MixedFigures:
    def of_class(label: str) -> ClassFigures:
        met = (run.attainment_by_class.get(label, 1.0) for run in runs)
        return ClassFigures(attainment=statistics.fmean(met))

    return MixedFigures(
        attainment=statistics.fmean(run.attainment for run in runs),
        completed=sum(run.completed for run in runs),
        submitted=sum(run.submitted for run in runs),
        mean_s=statistics.fmean(run.mean_s for run in runs),
        p99_s=statistics.fmean(run.p99_s for run in runs),
        S=of_class("S"),
        M=of_class("M"),
        L=of_class("L"),
    )
