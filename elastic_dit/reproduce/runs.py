"""Simulations by a few words, and the figures that are kept of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from elastic_dit.cost import CostModel, CostTimes
from elastic_dit.reproduce.parallel import run_all
from elastic_dit.simulate.ddit_grid import SINGLE_NODE, Deployment
from elastic_dit.simulate.outcome import RequestOutcome, SimulationResult
from elastic_dit.simulate.setup import find_cost_model, set_up
from elastic_dit.simulate.workload import Arrival

__all__ = ["Figures", "Simulation", "Workload", "cost_model", "simulate", "simulate_all"]


class Workload(Protocol):
    """Requests of one run; plain data, so that it can go to another process."""

    def arrivals(self) -> Sequence[Arrival]:
        """Which requests come when."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One run.

    Attributes
    ----------
    policy : str
        Name of a dispatch policy.
    workload : Workload
    cost : str
        Name of a cost model, as `find_cost_model` takes it.
    deployment : Deployment
    handover_s : float
        Of every change of the GPUs that work on a request.
    """

    policy: str
    workload: Workload
    cost: str = "ddit"
    deployment: Deployment = SINGLE_NODE
    handover_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is kept of a run.

    Attributes
    ----------
    submitted, completed : int
    mean_s, p99_s : float
        Latency of completed requests; infinite where none was completed.
    gpu_seconds : float
        GPUs x seconds they were occupied (DDiT eq. 2).
    attainment : float
        Part of the submitted requests in time.
    attainment_by_class : dict of str to float
    refused : int
        Actions of the policy that could not be carried out: 0 unless it is wrong.
    """

    submitted: int
    completed: int
    mean_s: float
    p99_s: float
    gpu_seconds: float
    attainment: float
    attainment_by_class: Mapping[str, float] = field(default_factory=dict)
    refused: int = 0


@lru_cache
def cost_model(name: str) -> CostModel:
    """A cost model by name, read once; see `find_cost_model`."""
    return find_cost_model(name)


@lru_cache
def _times(name: str) -> CostTimes:
    return CostTimes(cost_model(name))


def simulate(simulation: Simulation) -> Figures:
    """Run one simulation in this process."""
    cluster = set_up(
        simulation.workload.arrivals(),
        policy=simulation.policy,
        cost=cost_model(simulation.cost),
        times=_times(simulation.cost),
        deployment=simulation.deployment,
        handover_s=simulation.handover_s,
    )
    return _figures(cluster.run(), cluster.controller.refused)


def _figures(result: SimulationResult, refused: int) -> Figures:
    summary = result.summary()
    none = float("inf")
    labels = sorted({outcome.label for outcome in result.requests})
    return Figures(
        submitted=summary["submitted"],
        completed=summary["completed"],
        mean_s=none if summary["mean_s"] is None else summary["mean_s"],
        p99_s=none if summary["p99_s"] is None else summary["p99_s"],
        gpu_seconds=summary["gpu_seconds"],
        attainment=summary["attainment"],
        attainment_by_class={label: result.attainment(_is(label)) for label in labels},
        refused=refused,
    )


def _is(label: str) -> Callable[[RequestOutcome], bool]:
    return lambda outcome: outcome.label == label


def simulate_all(
    simulations: Sequence[Simulation],
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> list[Figures]:
    """Run all, in parallel; see `run_all`.

    Returns
    -------
    list of Figures
        In the order of `simulations`.
    """
    return run_all(simulate, simulations, processes=processes, done=done)
