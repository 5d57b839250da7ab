"""DisagFusion's evaluation as pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from elastic_dit.reproduce.disagfusion_paper import figures
from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport, TraceFigures
from elastic_dit.reproduce.plots import png, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_scaling_and_jitter", "draw_traces"]

_COLOURS = MappingProxyType(
    {
        "s161": "#a3abb8",
        "s152": "#7a8494",
        "reactive": "#3fa796",
        "hybrid": "#f08c3a",
        "hybrid_any": "#d9b26a",
        "packed": "#4c6ef5",
        "monolithic": "#c9ced6",
    }
)
_SMOOTH_MINUTES = 3
"""Completions are averaged over so many minutes: at five a minute a single one is noise."""


def draw_traces(report: DisagFusionReport) -> bytes:
    """Throughput over time on the three traces, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 4.2), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    phase_minutes = report.setting.phase_s / 60.0
    written_minutes = 15.0
    _draw_trace(axes[0], report.parameter_trace_a10, "A10: 4 steps, then 1", phase_minutes)
    _draw_trace(axes[1], report.rate_trace_a10, "A10: a higher rate", written_minutes)
    _draw_trace(axes[2], report.parameter_trace_h100, "H100: 4 steps, then 1", phase_minutes)
    axes[0].set_ylabel("requests completed per minute")
    tidy(axes)
    return png(figure)


def _draw_trace(
    axes: Axes, trace: Mapping[str, TraceFigures], title: str, shift_minutes: float
) -> None:
    for name, of in trace.items():
        heights = _smooth(of.minute_qpm[:-1])
        axes.plot(
            range(len(heights)), heights, color=_COLOURS[name], label=name,
            linewidth=2.0 if name in ("hybrid", "packed") else 1.2,
        )  # fmt: skip
    axes.axvline(shift_minutes, color="#22262e", linewidth=0.8, linestyle=":")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("minutes")
    axes.legend(fontsize=7, ncols=2)


def _smooth(values: Sequence[float]) -> list[float]:
    width = _SMOOTH_MINUTES
    return [
        sum(values[max(0, end - width) : end]) / min(width, end)
        for end in range(1, len(values) + 1)
    ]


def draw_scaling_and_jitter(report: DisagFusionReport) -> bytes:
    """Throughput by number of GPUs, and what jitter costs, theirs and ours, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    gpus = list(report.scaling)
    theirs = figures()["throughput_qpm"]["scaling_i2v_4_steps"]
    bars = {
        "one stage each": [of.exclusive_qpm for of in report.scaling.values()],
        "sharing": [of.packed_qpm for of in report.scaling.values()],
        "monolithic": [of.monolithic_qpm for of in report.scaling.values()],
        "the paper": [theirs.get(int(number), math.nan) for number in gpus],
    }
    _draw_bars(left, gpus, bars)
    left.set_xlabel("GPUs, 4-step requests")
    left.set_ylabel("requests per minute")
    patterns = [name for name in report.jitter if "lost_synchronous" in figures()["jitter"][name]]
    of = figures()["jitter"]
    lost = {
        "synchronous": [report.jitter[name].synchronous_lost_percent for name in patterns],
        "synchronous, the paper": [of[name]["lost_synchronous"] for name in patterns],
        "pulled": [report.jitter[name].ours_lost_percent for name in patterns],
        "queues, the paper": [of[name]["lost_disagfusion"] for name in patterns],
    }
    _draw_bars(right, patterns, lost)
    right.set_xlabel("jitter")
    right.set_ylabel("throughput lost, per cent")
    tidy([left, right])
    return png(figure)


_BAR_COLOURS = ("#4c6ef5", "#a9b8f7", "#f08c3a", "#c9ced6")


def _draw_bars(axes: Axes, places: Sequence[str], bars: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(bars)
    for number, (label, heights) in enumerate(bars.items()):
        at = [place + (number - (len(bars) - 1) / 2) * width for place in range(len(places))]
        drawn = axes.bar(at, heights, width, label=label, color=_BAR_COLOURS[number])
        labels = ["" if math.isnan(height) else f"{height:.1f}" for height in heights]
        axes.bar_label(drawn, labels, fontsize=7)
    axes.set_xticks(range(len(places)), places)
    axes.legend(fontsize=7)
