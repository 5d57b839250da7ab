"""Reproduced experiments as tables on a console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from elastic_dit.reproduce.predictor_schema import PredictorReport
    from elastic_dit.reproduce.schema import DditReport, MixedReport

__all__ = ["draw_ddit", "draw_mixed_priority", "draw_predictor", "figure_table"]

_VERDICT_STYLES = {"reproduced": "green", "in part": "yellow", "not reproduced": "red"}


def figure_table(title: str, first: Sequence[str], figures: Sequence[str]) -> Table:
    """A table with columns of text, then columns of figures."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    for name in first:
        table.add_column(name, header_style="dim")
    for name in figures:
        table.add_column(name, header_style="dim", justify="right")
    return table


def draw_ddit(report: DditReport) -> RenderableType:
    """Theirs beside ours, `elastic` over DDiT, and the burst on 64 GPUs."""
    return Group(_claims(report), _reasons(report), _elastic(report), _burst(report))


def _claims(report: DditReport) -> Table:
    title = "DDiT: theirs beside ours (reductions, least to most favourable cell)"
    table = figure_table(title, ("claim",), ("theirs", "ours", ""))
    for claim in report.claims:
        verdict = Text(claim.verdict, _VERDICT_STYLES[claim.verdict])
        ours = f"{claim.low:.1%} to {claim.high:.1%}"
        table.add_row(f"{claim.where}: {claim.what}", claim.theirs, ours, verdict)
    return table


def _reasons(report: DditReport) -> Text:
    reasons = dict.fromkeys(claim.why for claim in report.claims if claim.why)
    return Text("\n".join(["What does not, and why:", *(f"- {why}." for why in reasons)]))


def _elastic(report: DditReport) -> Table:
    ratios = report.grid.elastic_vs_ddit
    title = f"elastic over DDiT, {len(report.grid.cells)} cells"
    table = figure_table(title, ("latency",), ("geometric mean", "worst", "cell"))
    for name, ratio in (("mean", ratios.mean), ("p99", ratios.p99)):
        table.add_row(name, f"{ratio.geomean:.3f}", f"{ratio.max:.3f}", ratio.max_cell)
    over = report.grid.mean_vs_bound
    table.add_row("mean over lower bound", f"{over['elastic']:.2f}", "", f"DDiT {over['ddit']:.2f}")
    return table


def _burst(report: DditReport) -> Table:
    burst = report.burst64
    table = figure_table("Burst on 64 GPUs", ("policy",), ("cost ÷ optimum", "÷ least work"))
    for policy, ratio in burst.cost_vs_optimum.items():
        table.add_row(policy, f"{ratio:.3f}", f"{burst.cost_vs_least[policy]:.3f}")
    return table


def draw_mixed_priority(report: MixedReport) -> RenderableType:
    """`elastic`, its rivals and the best listed policy, workload by workload."""
    figures = ("attainment", "S", "M", "L", "completed", "mean s", "p99 s")
    table = figure_table("Deadlines met", ("workload", "policy"), figures)
    for workload, ours in report.mixed_priority.items():
        best = report.best_listed[workload]
        shown = {f"{best} (listed)": report.listed[workload][best], **ours}
        for policy, of in shown.items():
            met = (of.attainment, of.S.attainment, of.M.attainment, of.L.attainment)
            table.add_row(
                workload, policy, *(f"{each:.3f}" for each in met),
                f"{of.completed}/{of.submitted}", f"{of.mean_s:.0f}", f"{of.p99_s:.0f}",
                style="bold" if policy == "elastic" else None,
            )  # fmt: skip
            workload = ""  # noqa: PLW2901 (told once)
    return table


def draw_predictor(report: PredictorReport) -> RenderableType:
    """Both predictors over the best split found, on held-out situations."""
    from elastic_dit.reproduce.predictor_page import verdict

    columns = ("throughput", "least", "best found", "latency", "worst")
    table = figure_table("Over the best static split", ("predictor",), columns)
    for name, of in report.predictors.items():
        table.add_row(
            name, f"{of.mean_throughput:.4f}", f"{of.least_throughput:.4f}", f"{of.best_found:.0%}",
            f"{of.mean_latency:.3f}", f"{of.worst_latency:.3f}",
        )  # fmt: skip
    return Group(table, Text(verdict(report)))
