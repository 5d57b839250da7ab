"""The picture of ``elastic-dit plan``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from elastic_dit.simulate.plan import PlanReport, Question
    from elastic_dit.simulate.sizing import Target

__all__ = ["draw_plan"]

_DPI = 110


def draw_plan(report: PlanReport, question: Question, target: Target | None) -> bytes:
    """How latencies spread, and with a target how they change with the GPUs, as a PNG.

    Parameters
    ----------
    report : PlanReport
    question : Question
        With the results of its runs.
    target : Target or None
    """
    from matplotlib.figure import Figure

    columns = 1 if target is None else 2
    figure = Figure(figsize=(5.5 * columns, 4.0), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    _draw_spread(axes[0], report, question)
    if target is not None:
        _draw_sizes(axes[1], report, target)
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="#e3e6eb", linewidth=0.6)
        if each.lines:
            each.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()


def _draw_spread(axes: Axes, report: PlanReport, question: Question) -> None:
    for policy in question.policies:
        rows = [row for row in report.runs if row.policy == policy]
        gpus = report.answer.get(policy) or rows[-1].gpus
        latencies = question.results[policy, gpus].latencies_s()
        shares = [(number + 1) / report.requests for number in range(len(latencies))]
        axes.step(latencies, shares, where="post", label=f"{policy}, {gpus} GPUs")
    axes.set_xlabel("latency, s")
    axes.set_ylabel("part of the requests")
    axes.set_ylim(0.0, 1.02)


def _draw_sizes(axes: Axes, report: PlanReport, target: Target) -> None:
    for policy in report.answer:
        rows = [row for row in report.runs if row.policy == policy]
        points = [(row.gpus, target.value(row.model_dump())) for row in rows]
        known = [(gpus, value) for gpus, value in points if value is not None]
        axes.plot(*zip(*known, strict=True), marker="o", label=policy)
    axes.axhline(target.bound, color="#22262e", linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    if target.metric != "attainment":
        axes.set_yscale("log")
    axes.set_xlabel("GPUs")
    axes.set_ylabel(target.metric if target.metric == "attainment" else f"{target.metric}, s")
