"""DisagFusion's evaluation: run, on the console, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from elastic_dit.cli.reproduce_tables import figure_table

if TYPE_CHECKING:
    from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport

__all__ = ["disagfusion_files", "draw_disagfusion"]


def disagfusion_files(report: DisagFusionReport) -> dict[str, bytes]:
    """The page and its pictures, by name."""
    from elastic_dit.reproduce.disagfusion_page import disagfusion_page
    from elastic_dit.reproduce.disagfusion_plots import draw_scaling_and_jitter, draw_traces

    return {
        "disagfusion.md": disagfusion_page(report).encode(),
        "disagfusion.png": draw_traces(report),
        "disagfusion-scaling.png": draw_scaling_and_jitter(report),
    }


def draw_disagfusion(report: DisagFusionReport) -> RenderableType:
    """Theirs beside ours, and the traces."""
    return Group(_comparisons(report), _reasons(report), *_traces(report))


def _comparisons(report: DisagFusionReport) -> RenderableType:
    from elastic_dit.reproduce.disagfusion_page import value_of

    table = figure_table("DisagFusion: theirs beside ours", ("",), ("theirs", "ours", ""))
    for each in report.comparisons:
        verdict = "reproduced" if each.reproduced else "not reproduced"
        style = "green" if each.reproduced else "red"
        theirs, ours = value_of(each, each.theirs), value_of(each, each.ours)
        table.add_row(each.what, theirs, ours, Text(verdict, style))
    return table


def _reasons(report: DisagFusionReport) -> Text:
    reasons = dict.fromkeys(each.why for each in report.comparisons if each.why)
    return Text("\n".join(["What does not, and why:", *(f"- {why}." for why in reasons)]))


def _traces(report: DisagFusionReport) -> list[RenderableType]:
    shown = {
        "8 A10, 4 steps, then 1": report.parameter_trace_a10,
        "A10, a higher rate": report.rate_trace_a10,
        "8 H100, 4 steps, then 1": report.parameter_trace_h100,
    }
    tables: list[RenderableType] = []
    for title, traces in shown.items():
        table = figure_table(title, ("requests per minute",), ("phase 1", "phase 2", "switched"))
        for name, of in traces.items():
            switched = "" if of.switched_after_s is None else f"{of.switched_after_s:.0f} s"
            table.add_row(name, f"{of.phase_1_qpm:.2f}", f"{of.phase_2_qpm:.2f}", switched)
        tables.append(table)
    return tables
