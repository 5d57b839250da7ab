"""DDiT's evaluation: the grid, the burst on 64 GPUs, and the two breakdowns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from elastic_dit._version import __version__
from elastic_dit.control.optimum import (
    Occupancy,
    RequestType,
    batch_occupancy,
    queue_occupancy,
    theoretical_optimum,
)
from elastic_dit.cost import CostModel
from elastic_dit.reproduce.bounds import least_gpu_s, mean_bound_s
from elastic_dit.reproduce.claims import TOLERANCE, best_static, judge_claims
from elastic_dit.reproduce.ddit_paper import DECOUPLING_MIXES, PROMOTION_MIXES
from elastic_dit.reproduce.runs import Figures, Simulation, cost_model, simulate_all
from elastic_dit.reproduce.schema import (
    Burst64,
    Cell64,
    CellReport,
    DditReport,
    DditSetting,
    GridReport,
    PolicyFigures,
    Ratio,
    Ratios,
    Step,
)
from elastic_dit.request import Stage
from elastic_dit.simulate.ddit_grid import (
    MIXES,
    MULTI_NODE,
    RATES_PER_S,
    REQUESTS,
    SEEDS,
    SINGLE_NODE,
    Cell,
    Deployment,
    request_classes,
)
from elastic_dit.simulate.workload import Arrival

__all__ = ["BURST_POLICIES", "GRID_POLICIES", "DditExperiment", "GridWorkload", "reproduce_ddit"]

GRID_POLICIES = (
    "static-1",
    *(f"static-{dop}{how}" for dop in (2, 4, 8) for how in ("", "-decoupled")),
    "spci",
    "dpci",
    "dp",
    "edf",
    "srtf-1",
    "ddit",
    "ddit-no-promotion",
    "elastic",
)
"""Policies of the single node. At DoP 1 there is nothing to decouple."""
BURST_POLICIES = ("static-1", "static-4", "spci", "dpci", "dp", "ddit", "elastic")
"""Policies of the 64 GPUs: the paper's, and ours."""

_Mix = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class GridWorkload:
    """Requests of one cell and seed."""

    cell: Cell
    seed: int
    count: int

    def arrivals(self) -> Sequence[Arrival]:
        """See `Cell.arrivals`."""
        return _arrivals(self)


@lru_cache(maxsize=16)
def _arrivals(workload: GridWorkload) -> Sequence[Arrival]:
    """Remembered: all policies get the same ones, one after the other."""
    return workload.cell.arrivals(workload.seed, workload.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DditExperiment:
    """What to run; the default is all of it.

    Attributes
    ----------
    mixes, rates, seeds, requests
        As in `elastic_dit.simulate.ddit_grid`.
    policies, burst_policies : tuple of str
        ``ddit`` and ``elastic`` must be among them.
    """

    mixes: tuple[_Mix, ...] = MIXES
    rates: tuple[float | None, ...] = (*RATES_PER_S, None)
    seeds: tuple[int, ...] = SEEDS
    requests: int = REQUESTS
    policies: tuple[str, ...] = GRID_POLICIES
    burst_policies: tuple[str, ...] = BURST_POLICIES

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells of the grid."""
        return tuple(Cell(mix, rate) for mix in self.mixes for rate in self.rates)

    @property
    def runs(self) -> int:
        """Simulations in all."""
        cells = len(self.cells) * len(self.policies) + len(self.mixes) * len(self.burst_policies)
        return cells * len(self.seeds)


def reproduce_ddit(
    experiment: DditExperiment | None = None,
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> DditReport:
    """Run the experiment.

    Parameters
    ----------
    experiment : DditExperiment, optional
    processes, done
        As in `simulate_all`.
    """
    asked = experiment or DditExperiment()
    began = time.perf_counter()
    bursts = tuple(Cell(mix, None) for mix in asked.mixes)
    grid = _simulations(asked, asked.cells, asked.policies, SINGLE_NODE)
    burst = _simulations(asked, bursts, asked.burst_policies, MULTI_NODE)
    figures = iter(simulate_all([*grid, *burst], processes=processes, done=done))
    small = _averages(asked, asked.cells, asked.policies, figures)
    large = _averages(asked, bursts, asked.burst_policies, figures)
    single = _grid(asked, small)
    return DditReport(
        software=f"elastic-dit {__version__}",
        setting=DditSetting(
            requests=asked.requests,
            seeds=len(asked.seeds),
            gpus=SINGLE_NODE.gpus,
            policies=asked.policies,
            tolerance=TOLERANCE,
        ),
        grid=single,
        burst64=_burst64(asked, large),
        decoupling=_steps(small, DECOUPLING_MIXES, "static-2-decoupled", "static-2"),
        promotion=_steps(small, PROMOTION_MIXES, "ddit", "ddit-no-promotion"),
        queue_optimum=queue_optimum(),
        best_static=best_static(single.cells),
        claims=judge_claims(small, large),
        wall_seconds=time.perf_counter() - began,
    )


Averages = Mapping[Cell, Mapping[str, PolicyFigures]]


def _simulations(
    asked: DditExperiment, cells: Iterable[Cell], policies: Sequence[str], where: Deployment
) -> list[Simulation]:
    return [
        Simulation(
            policy=policy, workload=GridWorkload(cell, seed, asked.requests), deployment=where
        )
        for cell in cells
        for policy in policies
        for seed in asked.seeds
    ]


def _averages(
    asked: DditExperiment,
    cells: Iterable[Cell],
    policies: Sequence[str],
    figures: Iterable[Figures],
) -> Averages:
    """Means over the seeds, taken off `figures` in the order of `_simulations`."""
    following = iter(figures)
    return {
        cell: {policy: _average([next(following) for _ in asked.seeds]) for policy in policies}
        for cell in cells
    }


def _average(runs: Sequence[Figures]) -> PolicyFigures:
    return PolicyFigures(
        submitted=sum(run.submitted for run in runs),
        completed=sum(run.completed for run in runs),
        mean_s=statistics.fmean(run.mean_s for run in runs),
        p99_s=statistics.fmean(run.p99_s for run in runs),
        gpu_seconds=statistics.fmean(run.gpu_seconds for run in runs),
    )


# ------------------------------------------------------------------------------- single node
def _grid(asked: DditExperiment, found: Averages) -> GridReport:
    cost = cost_model("ddit")
    bounds = {
        cell: statistics.fmean(
            mean_bound_s(cell.arrivals(seed, asked.requests), cost, SINGLE_NODE.gpus)
            for seed in asked.seeds
        )
        for cell in found
    }
    return GridReport(
        cells={
            cell.name: CellReport(policies=dict(by_policy), mean_bound_s=bounds[cell])
            for cell, by_policy in found.items()
        },
        elastic_vs_ddit=Ratios(
            mean=_ratio({cell.name: _mean(of, "elastic", "ddit") for cell, of in found.items()}),
            p99=_ratio({cell.name: _p99(of, "elastic", "ddit") for cell, of in found.items()}),
        ),
        mean_vs_bound={
            policy: statistics.geometric_mean(
                of[policy].mean_s / bounds[cell] for cell, of in found.items()
            )
            for policy in asked.policies
        },
    )


def _ratio(by_cell: Mapping[str, float]) -> Ratio:
    worst = max(by_cell, key=lambda name: by_cell[name])
    return Ratio(
        geomean=statistics.geometric_mean(by_cell.values()), max=by_cell[worst], max_cell=worst
    )


def _mean(of: Mapping[str, PolicyFigures], ours: str, other: str) -> float:
    return of[ours].mean_s / of[other].mean_s


def _p99(of: Mapping[str, PolicyFigures], ours: str, other: str) -> float:
    return of[ours].p99_s / of[other].p99_s


def _steps(found: Averages, mixes: Sequence[_Mix], ours: str, without: str) -> tuple[Step, ...]:
    """What one mechanism changes, at the two loads that the paper shows."""
    cells = [Cell(mix, rate) for rate in (None, 0.5) for mix in mixes]
    return tuple(
        Step(
            cell=cell.name,
            mean=_mean(found[cell], ours, without),
            p99=_p99(found[cell], ours, without),
        )
        for cell in cells
        if cell in found and {ours, without} <= set(found[cell])
    )


# ---------------------------------------------------------------------------------- optimum
def _burst64(asked: DditExperiment, found: Averages) -> Burst64:
    cost = cost_model("ddit")
    mixes: dict[str, Cell64] = {}
    for cell, by_policy in found.items():
        least = (
            sum(least_gpu_s(one.request, cost) for one in cell.arrivals(seed, asked.requests))
            for seed in asked.seeds
        )
        mixes[":".join(map(str, cell.mix))] = Cell64(
            optimum_gpu_s=_optimum(cell.mix, batch_occupancy(asked.requests), MULTI_NODE, cost),
            least_gpu_s=statistics.fmean(least),
            policies=dict(by_policy),
        )

    def over(of: Callable[[Cell64], float], policy: str) -> float:
        costs = ((one.policies[policy].gpu_seconds, of(one)) for one in mixes.values())
        return statistics.geometric_mean(ours / theirs for ours, theirs in costs)

    return Burst64(
        cost_vs_optimum={
            policy: over(lambda one: one.optimum_gpu_s, policy) for policy in asked.burst_policies
        },
        cost_vs_least={
            policy: over(lambda one: one.least_gpu_s, policy) for policy in asked.burst_policies
        },
        mixes=mixes,
    )


def _optimum(mix: _Mix, occupancy: Occupancy, where: Deployment, cost: CostModel) -> float:
    """Algorithm 1; a request takes its DiT's and its VAE's time, on all GPUs of its instance."""
    types = []
    for kind in request_classes(mix):
        request = kind.request("any", seed=0)
        decode_s = cost.stage_seconds(request, Stage.DECODER)
        seconds = {
            dop: cost.stage_seconds(request, Stage.DIT, dop) + decode_s
            for dop in cost.allowed_dops(request)
        }
        types.append(RequestType(share=kind.share / sum(mix), seconds=seconds))
    return theoretical_optimum(
        types, nodes=where.nodes, slots_per_node=where.gpus_per_node, occupancy=occupancy
    ).cost_gpu_s


def queue_optimum() -> dict[str, dict[str, float | None]]:
    """Algorithm 1's queue model of the mix 1:1:1 on one node, by both forms of eq. 7.

    Returns
    -------
    dict
        By arrival rate: ``printed`` and ``corrected``, None where no deal keeps up.
    """
    cost, mix = cost_model("ddit"), (1, 1, 1)
    found: dict[str, dict[str, float | None]] = {}
    for rate in RATES_PER_S:
        forms = {
            name: _optimum(mix, queue_occupancy(rate, corrected=corrected), SINGLE_NODE, cost)
            for name, corrected in (("printed", False), ("corrected", True))
        }
        found[f"{rate:g}"] = {
            name: value if math.isfinite(value) else None for name, value in forms.items()
        }
    return found
