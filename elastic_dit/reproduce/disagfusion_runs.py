"""One run of DisagFusion's evaluation: a deployment, a load, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from elastic_dit.config import ControlConfig, PlacementConfig, StageRatio
from elastic_dit.control import Controller, PlacementPolicy
from elastic_dit.control.placement import Hybrid, make_placement
from elastic_dit.predict.balanced import bottleneck_hz
from elastic_dit.predict.workload import Workload, check_gpus
from elastic_dit.reproduce import disagfusion_paper as paper
from elastic_dit.request import Stage
from elastic_dit.simulate.closed_loop import ClosedLoop
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import SimulationResult
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.workload import Arrival

__all__ = [
    "PROVISION_S",
    "USERS_PER_GPU",
    "AmongRatios",
    "Change",
    "Deal",
    "Jitter",
    "Outcome",
    "Phase",
    "Trial",
    "regular_arrivals",
    "run_trial",
]

Ratio = tuple[int, int, int]

_GPUS_PER_NODE = 8
PROVISION_S = 60.0
"""Until another machine is there; the paper does not say how long that takes."""
USERS_PER_GPU = 2
"""Requests in a closed loop: enough for every GPU to have one and another to wait for it."""
_RAMP_S = 10.0
"""Between the first requests of a closed loop: the rate of the paper's traces."""
_DECISIONS = 100_000
_MINUTE = 60.0


class AmongRatios:
    """A `RatioPredictor` that knows a few splits only, and takes the one that serves most.

    Parameters
    ----------
    ratios : sequence of (int, int, int)
        Splits E:T:D, each of as many GPUs as there are.
    """

    def __init__(self, ratios: Sequence[Ratio]) -> None:
        self._ratios = [dict(zip(Stage, ratio, strict=True)) for ratio in ratios]

    def __repr__(self) -> str:
        return f"AmongRatios({len(self._ratios)})"

    def predict(self, workload: Workload, gpus: Mapping[str, int]) -> Mapping[Stage, int]:
        """See `RatioPredictor`."""
        total = check_gpus(workload, gpus)
        fitting = [ratio for ratio in self._ratios if sum(ratio.values()) == total]
        return max(fitting, key=lambda ratio: bottleneck_hz(workload, ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """How stages are placed.

    Attributes
    ----------
    policy : str
        ``static``, ``reactive``, ``hybrid``, ``packed`` (hybrid without exclusive stages), or
        ``monolithic``: every GPU for itself, loading and unloading all stages for each request.
    ratio : tuple of int
        E:T:D to begin with.
    among : tuple of tuple of int
        For ``hybrid``: the only splits to choose from; empty for any.
    """

    policy: Literal["static", "reactive", "hybrid", "packed", "monolithic"]
    ratio: Ratio = (1, 6, 1)
    among: tuple[Ratio, ...] = ()

    def placement(self, max_machines: int | None) -> PlacementPolicy | None:
        """The policy of the product; None where nothing is to be placed."""
        if self.policy == "monolithic":
            return None
        encoder, dit, decoder = self.ratio
        config = PlacementConfig(
            policy="hybrid" if self.policy == "packed" else self.policy,
            exclusive=self.policy != "packed",
            ratio=StageRatio(encoder=encoder, dit=dit, decoder=decoder),
            max_machines=max_machines,
        )
        if self.among:
            return Hybrid(config, [paper.MODEL], AmongRatios(self.among))
        return make_placement(config, [paper.MODEL])

    @property
    def dispatch(self) -> str:
        """First come, first served; max-weight where stages share GPUs."""
        return "pressure" if self.policy == "packed" else "fcfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the trace.

    Attributes
    ----------
    steps : int
        Of its requests.
    duration_s : float
    interval_s : float or None
        Between two arrivals; None keeps a fixed number of requests in the system instead.
    settle_s : float
        Of its beginning, left out of its throughput.
    """

    steps: int
    duration_s: float
    interval_s: float | None = None
    settle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Delays of transfers.

    Attributes
    ----------
    probability, delay_s : float
    messages : int
        Sent together for one hand-over, which is late if any of them is.
    synchronous : bool
        Whether who sends is blocked until all has arrived.
    """

    probability: float = 0.0
    delay_s: float = 0.0
    messages: int = 1
    synchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run; plain data.

    Attributes
    ----------
    deal : Deal
    phases : tuple of Phase
        All with an interval between arrivals, or none.
    gpus : int
        In machines of 8, or one of less.
    kind : str
        ``A10`` or ``H100``.
    max_machines : int or None
        Up to so many may be asked for.
    jitter : Jitter
    burst : int
        So many requests at once instead of the phases' arrivals.
    seed : int
    """

    deal: Deal
    phases: tuple[Phase, ...]
    gpus: int = _GPUS_PER_NODE
    kind: str = "A10"
    max_machines: int | None = None
    jitter: Jitter = field(default_factory=Jitter)
    burst: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A placement plan and when it was carried out.

    Attributes
    ----------
    at_s : float
    done_s : float
        End of the last load or drop before the next plan.
    reason : str
    """

    at_s: float
    done_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes
    ----------
    phase_qpm : tuple of float
        Requests completed per minute in each phase, its settling left out.
    phase_mean_s : tuple of float or None
        Mean latency of those that ended in each phase.
    minute_qpm : tuple of float
        Completions by minute.
    changes : tuple of Change
        Placement plans after the first.
    waiting_at_end : int
    makespan_s : float
    """

    phase_qpm: tuple[float, ...]
    phase_mean_s: tuple[float | None, ...]
    minute_qpm: tuple[float, ...]
    changes: tuple[Change, ...]
    waiting_at_end: int
    makespan_s: float


def regular_arrivals(phases: Sequence[Phase]) -> list[Arrival]:
    """Requests at fixed intervals, the first of each phase at its beginning."""
    arrivals: list[Arrival] = []
    start_s = 0.0
    for phase in phases:
        assert phase.interval_s is not None, phase
        kind = paper.requests(phase.steps)
        for number in range(round(phase.duration_s / phase.interval_s)):
            index = len(arrivals)
            request = kind.request(f"{kind.label}-{index:05d}", seed=index)
            at_s = start_s + number * phase.interval_s
            arrivals.append(Arrival(at_s=at_s, request=request, label=kind.label))
        start_s += phase.duration_s
    return arrivals


def run_trial(trial: Trial) -> Outcome:
    """Simulate one run on the controller and the placement policies of the product."""
    controller, cluster = _set_up(trial)
    end_s = sum(phase.duration_s for phase in trial.phases)
    if trial.burst:
        kind = paper.requests(trial.phases[0].steps)
        cluster.submit(
            Arrival(at_s=0.0, request=kind.request(f"r-{index}", seed=index), label=kind.label)
            for index in range(trial.burst)
        )
    elif trial.phases[0].interval_s is not None:
        cluster.submit(regular_arrivals(trial.phases))
    else:
        users = USERS_PER_GPU * trial.gpus
        ClosedLoop(
            cluster, users=users, kind_at=lambda at_s: paper.requests(_phase_at(trial, at_s).steps),
            until_s=end_s, ramp_s=users * _RAMP_S,
        )  # fmt: skip
    result = cluster.run(None if trial.burst else end_s)
    controller.check()
    assert controller.refused == 0, list(controller.decisions)[-1]
    return _outcome(trial, controller, result)


def _set_up(trial: Trial) -> tuple[Controller, VirtualCluster]:
    monolithic = trial.deal.policy == "monolithic"
    cost = paper.h100_cost() if trial.kind == "H100" else paper.a10_cost()
    if monolithic:
        cost = paper.monolithic_cost()
    controller = Controller(
        ControlConfig(dispatch=trial.deal.dispatch, decisions_kept=_DECISIONS),
        times=cost,
        memory=paper.memory(trial.kind),
    )
    jitter = trial.jitter
    cluster = VirtualCluster(
        controller,
        cost,
        overheads=Overheads(
            stage_load_s=paper.load_seconds(),
            provision_s=PROVISION_S,
            jitter_probability=jitter.probability,
            jitter_s=jitter.delay_s,
            messages=jitter.messages,
            synchronous=jitter.synchronous,
        ),
        placement=trial.deal.placement(trial.max_machines),
        placement_interval_s=PlacementConfig().interval_s,
        seed=trial.seed,
    )
    for first in range(0, trial.gpus, _GPUS_PER_NODE):
        cluster.add_node(
            f"n{first // _GPUS_PER_NODE}",
            gpus=min(_GPUS_PER_NODE, trial.gpus - first),
            models=[paper.MODEL] if monolithic else [],
            kind=trial.kind,
            memory_bytes=paper.H100_BYTES if trial.kind == "H100" else paper.A10_BYTES,
        )
    return controller, cluster


def _phase_at(trial: Trial, at_s: float) -> Phase:
    for phase in trial.phases:
        if at_s < phase.duration_s:
            return phase
        at_s -= phase.duration_s
    return trial.phases[-1]


def _outcome(trial: Trial, controller: Controller, result: SimulationResult) -> Outcome:
    ends = [(r.ended_at, r.latency_s) for r in result.requests if r.ended_at is not None]
    qpm, means = [], []
    start_s = 0.0
    for phase in trial.phases:
        counted_s = phase.duration_s - phase.settle_s
        window = (start_s + phase.settle_s, start_s + phase.duration_s)
        inside = [latency for end, latency in ends if window[0] <= end < window[1]]
        latencies = [latency for latency in inside if latency is not None]
        qpm.append(_MINUTE * len(inside) / counted_s)
        means.append(sum(latencies) / len(latencies) if latencies else None)
        start_s += phase.duration_s
    minutes = [0] * (int(result.ended_at // _MINUTE) + 1)
    for end, _ in ends:
        minutes[int(end // _MINUTE)] += 1
    return Outcome(
        phase_qpm=tuple(qpm),
        phase_mean_s=tuple(means),
        minute_qpm=tuple(map(float, minutes)),
        changes=_changes(controller),
        waiting_at_end=controller.table.waiting,
        makespan_s=result.ended_at,
    )


def _changes(controller: Controller) -> tuple[Change, ...]:
    """Placement plans after the first, and when each was carried out."""
    changes: list[Change] = []
    for decision in controller.decisions:
        if decision.what == "plan":
            changes.append(Change(at_s=decision.at, done_s=decision.at, reason=decision.reason))
        elif decision.what in ("load", "drop") and changes:
            last = changes[-1]
            changes[-1] = Change(at_s=last.at_s, done_s=decision.at, reason=last.reason)
    return tuple(changes[1:])
