"""What a trace would need, and what a policy would do with it: behind ``elastic-dit plan``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from elastic_dit._version import __version__
from elastic_dit.cost import CostModel, CostTimes
from elastic_dit.simulate.ddit_grid import Deployment
from elastic_dit.simulate.outcome import RequestOutcome, SimulationResult, percentile
from elastic_dit.simulate.setup import set_up
from elastic_dit.simulate.sizing import Target, deployment_of, find_size, sizes
from elastic_dit.simulate.workload import Arrival

__all__ = ["ClassRow", "PlanReport", "PlanRow", "Question", "answer", "compare"]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ClassRow(_Report):
    """One class of requests in one run."""

    submitted: int
    """Its requests."""
    attainment: float
    """Part of them completed by their deadline, or at all where they have none."""
    p99_s: float | None
    """99th percentile of latency; null where none was completed."""


class PlanRow(_Report):
    """One simulated run."""

    policy: str
    """Dispatch policy."""
    gpus: int
    """GPUs in all."""
    nodes: int
    """Machines."""
    meets_target: bool | None
    """Whether the target was reached; null without one."""
    submitted: int
    """Requests of the trace."""
    completed: int
    """How many were completed."""
    mean_s: float | None
    """Mean latency from arrival to the end; null where none was completed."""
    p50_s: float | None
    """Median."""
    p90_s: float | None
    """90th percentile."""
    p95_s: float | None
    """95th percentile."""
    p99_s: float | None
    """99th percentile."""
    attainment: float
    """Part of the requests completed by their deadline, or at all where they have none."""
    makespan_s: float
    """When the last request ended."""
    gpu_seconds: float
    """GPUs x the seconds they were occupied."""
    utilisation: float
    """Part of all GPUs' time that they were at work."""
    classes: dict[str, ClassRow]
    """By name of the class."""


class PlanReport(_Report):
    """All of what `elastic-dit plan --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str = f"elastic-dit {__version__}"
    """Name and version of what wrote it."""
    trace: str
    """File or name of the workload."""
    requests: int
    """Requests in it."""
    cost: str
    """Name of the cost model."""
    target: str | None
    """What was to be reached; null where nothing was."""
    answer: dict[str, int | None]
    """Fewest GPUs that reach the target, by policy; null where no number tried does. Empty without
    a target."""
    runs: tuple[PlanRow, ...]
    """All runs, by policy and number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    Attributes
    ----------
    trace, cost_name : str
        Names, for the report.
    arrivals : sequence of Arrival
    cost : CostModel
    policies : tuple of str
    handover_s : float
        Of every change of group.
    results : dict
        Filled as runs end: result by policy and GPUs.
    """

    trace: str
    cost_name: str
    arrivals: Sequence[Arrival]
    cost: CostModel
    policies: tuple[str, ...]
    handover_s: float
    results: dict[tuple[str, int], SimulationResult] = field(default_factory=dict)

    def run(self, policy: str, where: Deployment, times: CostTimes) -> SimulationResult:
        """Simulate one policy on some machines."""
        cluster = set_up(
            self.arrivals,
            policy=policy,
            cost=self.cost,
            times=times,
            deployment=where,
            handover_s=self.handover_s,
        )
        result = cluster.run()
        self.results[policy, where.gpus] = result
        return result


def compare(question: Question, where: Deployment) -> PlanReport:
    """Every policy on the same machines.

    Parameters
    ----------
    question : Question
    where : Deployment

    Raises
    ------
    ConfigError
        Where a policy is unknown.
    """
    times = CostTimes(question.cost)
    rows = [
        _row(policy, where, question.run(policy, where, times), None)
        for policy in question.policies
    ]
    return _report(question, rows)


def answer(
    question: Question,
    target: Target,
    most: int,
    tried: Callable[[str, int], None] = lambda _policy, _gpus: None,
) -> PlanReport:
    """Fewest GPUs that reach a target, for every policy.

    Parameters
    ----------
    question : Question
    target : Target
    most : int
        Largest number of GPUs to try, in machines of 8.
    tried : callable
        Told of each run before it begins.

    Raises
    ------
    ConfigError
        Where a policy is unknown.
    """
    times = CostTimes(question.cost)
    rows: list[PlanRow] = []
    answers: dict[str, int | None] = {}
    for policy in question.policies:

        def simulate(gpus: int, policy: str = policy) -> dict[str, Any]:
            tried(policy, gpus)
            return question.run(policy, deployment_of(gpus), times).summary()

        found = find_size(target, simulate, sizes(most))
        answers[policy] = found.gpus
        rows += [
            _row(policy, deployment_of(gpus), question.results[policy, gpus], target)
            for gpus in found.tried
        ]
    return _report(question, rows, target, answers)


def _report(
    question: Question,
    rows: Sequence[PlanRow],
    target: Target | None = None,
    answers: dict[str, int | None] | None = None,
) -> PlanReport:
    return PlanReport(
        trace=question.trace,
        requests=len(question.arrivals),
        cost=question.cost_name,
        target=str(target) if target else None,
        answer=answers or {},
        runs=tuple(rows),
    )


def _row(
    policy: str, where: Deployment, result: SimulationResult, target: Target | None
) -> PlanRow:
    summary = result.summary()
    kept = {name: summary[name] for name in PlanRow.model_fields if name in summary}
    labels = sorted({outcome.label for outcome in result.requests} - {""})
    return PlanRow(
        policy=policy,
        gpus=where.gpus,
        nodes=where.nodes,
        meets_target=target.met(summary) if target else None,
        classes={label: _class_row(result, label) for label in labels},
        **kept,
    )


def _class_row(result: SimulationResult, label: str) -> ClassRow:
    def ours(outcome: RequestOutcome) -> bool:
        return outcome.label == label

    return ClassRow(
        submitted=sum(map(ours, result.requests)),
        attainment=result.attainment(ours),
        p99_s=percentile(result.latencies_s(ours), 99),
    )
