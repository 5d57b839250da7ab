"""Answer what ``elastic-dit plan`` was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.reproduce_run import make_folder
from elastic_dit.cli.reproduce_tables import figure_table
from elastic_dit.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from elastic_dit.cost import CostModel
    from elastic_dit.simulate.ddit_grid import Deployment
    from elastic_dit.simulate.plan import PlanReport, PlanRow, Question
    from elastic_dit.simulate.sizing import Target

__all__ = ["PlanOptions", "run_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Values of the command's options.

    Attributes
    ----------
    trace, mix : str or None
        One of them is given.
    requests : int or None
    seed : int
    gpus : int
        With a target, the most to try.
    nodes : int or None
    policies : tuple of str
    cost : str or None
    handover_s : float
    target, output, trace_out, json_path : str or None
    """

    trace: str | None
    mix: str | None
    requests: int | None
    seed: int
    gpus: int
    nodes: int | None
    policies: tuple[str, ...]
    cost: str | None
    handover_s: float
    target: str | None
    output: str | None
    trace_out: str | None
    json_path: str | None


def run_plan(options: PlanOptions) -> None:
    """Simulate, draw, write.

    Parameters
    ----------
    options : PlanOptions

    Raises
    ------
    ConfigError
        Where trace, cost model, policy or target are wrong.
    SaveError
        Where a file cannot be written.
    """
    from elastic_dit.simulate.sizing import Target

    check_json_path(options.json_path)
    check_json_path(options.trace_out)
    folder = make_folder(options.output) if options.output is not None else None
    console = human_console(options.json_path)
    target = Target.parse(options.target) if options.target is not None else None
    question = _question(options)
    report = _ask(console, options, question, target)
    console.print(_table(report))
    _say_answer(console, report)
    if folder is not None:
        from elastic_dit.cli.plan_plot import draw_plan
        from elastic_dit.files import write_atomically

        write_atomically(folder / "plan.png", draw_plan(report, question, target))
        console.print(f"In {folder}: plan.png.", soft_wrap=True)
    if options.trace_out is not None:
        row = _telling(report, options.policies[0])
        result = question.results[row.policy, row.gpus]
        write_json(options.trace_out, json.dumps(result.chrome_trace()))
    write_json(options.json_path, report.model_dump_json(indent=2))


def _question(options: PlanOptions) -> Question:
    from elastic_dit.control import make_dispatch
    from elastic_dit.simulate.ddit_grid import REQUESTS
    from elastic_dit.simulate.plan import Question
    from elastic_dit.simulate.trace import named_workload, read_trace

    for policy in options.policies:
        make_dispatch(policy)
    if options.trace is not None:
        name, arrivals = options.trace, read_trace(options.trace)
    else:
        name = options.mix or ""
        count = options.requests or REQUESTS
        arrivals = named_workload(name, count=count, seed=options.seed)
    published = "mixed-priority" if name.startswith("mixed-priority:") else "ddit"
    cost = options.cost or published
    return Question(
        trace=name,
        cost_name=cost,
        arrivals=arrivals,
        cost=_cost_model(cost),
        policies=tuple(dict.fromkeys(options.policies)),
        handover_s=options.handover_s,
    )


def _cost_model(name: str) -> CostModel:
    from elastic_dit.rib.reading import names_rib, read_cost
    from elastic_dit.simulate.setup import find_cost_model

    return read_cost(name) if names_rib(name) else find_cost_model(name)


def _ask(
    console: Console, options: PlanOptions, question: Question, target: Target | None
) -> PlanReport:
    from elastic_dit.simulate.plan import answer, compare

    with console.status("simulating") as status:
        if target is None:
            return compare(question, _deployment(options))

        def tried(policy: str, gpus: int) -> None:
            status.update(f"{policy} on {gpus} GPU{'s' if gpus > 1 else ''}")

        return answer(question, target, options.gpus, tried)


def _deployment(options: PlanOptions) -> Deployment:
    from elastic_dit.simulate.ddit_grid import Deployment
    from elastic_dit.simulate.sizing import deployment_of

    if options.nodes is None:
        found = deployment_of(options.gpus)
        if found.gpus != options.gpus:
            raise ConfigError("gpus", options.gpus, "up to 8, or a multiple of 8, without --nodes")
        return found
    if options.gpus % options.nodes:
        raise ConfigError("nodes", options.nodes, f"a divisor of the {options.gpus} GPUs")
    return Deployment(nodes=options.nodes, gpus_per_node=options.gpus // options.nodes)


def _table(report: PlanReport) -> Table:
    title = f"{report.requests} requests of {report.trace}, cost model {report.cost}"
    figures = ("GPUs", "completed", "mean s", "p50 s", "p99 s", "in time", "GPU-s", "at work")
    table = figure_table(title, ("policy",), (*figures, *(["target"] if report.target else [])))
    for row in report.runs:
        latencies = (row.mean_s, row.p50_s, row.p99_s)
        cells = [
            row.policy, f"{row.gpus}", f"{row.completed}/{row.submitted}",
            *("-" if value is None else f"{value:.2f}" for value in latencies),
            f"{row.attainment:.1%}", f"{row.gpu_seconds:.0f}", f"{row.utilisation:.0%}",
        ]  # fmt: skip
        if report.target:
            cells.append("met" if row.meets_target else "missed")
        style = "bold" if report.answer.get(row.policy) == row.gpus else None
        table.add_row(*cells, style=style)
    return table


def _say_answer(console: Console, report: PlanReport) -> None:
    for policy, gpus in report.answer.items():
        if gpus is None:
            most = max(row.gpus for row in report.runs if row.policy == policy)
            console.print(f"{policy}: not even {most} GPUs keep {report.target}.")
        else:
            console.print(f"{policy}: {gpus} GPU{'s' if gpus > 1 else ''} keep {report.target}.")


def _telling(report: PlanReport, policy: str) -> PlanRow:
    """The run that answers; without an answer the one with most GPUs."""
    rows = [row for row in report.runs if row.policy == policy]
    wanted = report.answer.get(policy)
    return next((row for row in rows if row.gpus == wanted), rows[-1])
