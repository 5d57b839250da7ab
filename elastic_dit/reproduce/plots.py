"""The results as pictures."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from elastic_dit.reproduce.schema import CellReport, DditReport, MixedReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_cells", "draw_grid", "draw_mixed", "png", "tidy"]

COLOURS = MappingProxyType(
    {
        "elastic": "#4c6ef5",
        "ddit": "#f08c3a",
        "static-1": "#c9ced6",
        "static-2": "#a3abb8",
        "static-4": "#7a8494",
        "spci": "#d9b8e8",
        "dpci": "#b48bc9",
        "dp": "#8c62a6",
        "edf": "#3fa796",
        "tetriserve": "#2b7a8c",
        "srtf-2": "#8fcbbf",
        "listed": "#22262e",
    }
)
"""One colour a policy: ours and DDiT stand out of the rest."""
_DPI = 110
_RATES = ("0.25", "0.5", "0.75", "1", "burst")


def draw_grid(report: DditReport) -> bytes:
    """Latency by arrival rate over DDiT's, and the cost of the burst on 64 GPUs, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    _draw_rates(axes[0], report, "mean_s", "mean latency ÷ DDiT's")
    _draw_rates(axes[1], report, "p99_s", "p99 latency ÷ DDiT's")
    axes[0].legend(fontsize=7, ncols=2)
    ratios = report.burst64.cost_vs_optimum
    bars = axes[2].barh(list(ratios), list(ratios.values()), color=[*map(_colour, ratios)])
    axes[2].bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes[2].axvline(1.0, color="#22262e", linewidth=0.8, linestyle=":")
    axes[2].set_xlim(0.0, 1.15 * max(ratios.values()))
    axes[2].set_xlabel("cost ÷ optimum, burst on 64 GPUs")
    axes[2].invert_yaxis()
    tidy(axes)
    return png(figure)


def _draw_rates(axes: Axes, report: DditReport, field: str, label: str) -> None:
    shown = [policy for policy in COLOURS if policy in report.setting.policies]
    rates = [rate for rate in _RATES if any(_at(name, rate) for name in report.grid.cells)]
    for policy in shown:
        heights = [
            statistics.geometric_mean(
                _over_ddit(cell, policy, field)
                for name, cell in report.grid.cells.items()
                if _at(name, rate)
            )
            for rate in rates
        ]
        ours = policy in ("elastic", "ddit")
        axes.plot(
            rates, heights, color=_colour(policy), label=policy, marker="o", markersize=4,
            linewidth=2.2 if ours else 1.2, zorder=3 if ours else 2,
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("arrivals per second")
    axes.set_ylabel(f"{label}, mean over mixes")


def _at(name: str, rate: str) -> bool:
    return name.endswith(f"@{rate}")


def _over_ddit(cell: CellReport, policy: str, field: str) -> float:
    return float(getattr(cell.policies[policy], field) / getattr(cell.policies["ddit"], field))


def draw_cells(report: DditReport) -> bytes:
    """`elastic` over DDiT in every cell, mean and 99th percentile, as a PNG."""
    from matplotlib.figure import Figure

    names = list(report.grid.cells)
    mixes = list(dict.fromkeys(name.partition("@")[0] for name in names))
    rates = [rate for rate in _RATES if any(_at(name, rate) for name in names)]
    figure = Figure(figsize=(9.0, 1.4 + 0.42 * len(mixes)), layout="constrained")
    for axes, field, title in zip(
        figure.subplots(1, 2), ("mean_s", "p99_s"), ("mean", "p99"), strict=True
    ):
        ratios = [
            [_over_ddit(report.grid.cells[f"{mix}@{rate}"], "elastic", field) for rate in rates]
            for mix in mixes
        ]
        axes.imshow(ratios, cmap="RdBu_r", vmin=0.5, vmax=1.5, aspect="auto")
        for row, values in enumerate(ratios):
            for column, value in enumerate(values):
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8)
        axes.set_xticks(range(len(rates)), rates)
        axes.set_yticks(range(len(mixes)), mixes)
        axes.set_xlabel("arrivals per second")
        axes.set_title(f"{title} latency: elastic ÷ DDiT", fontsize=10)
    figure.axes[0].set_ylabel("low : medium : high")
    return png(figure)


def draw_mixed(report: MixedReport) -> bytes:
    """Deadline attainment by workload, ours and the best listed, as a PNG."""
    from matplotlib.figure import Figure

    workloads = list(report.mixed_priority)
    shown = ["listed"]
    shown += [name for name in COLOURS if name in report.mixed_priority[workloads[0]]]
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(shown)
    for number, policy in enumerate(shown):
        heights = [
            report.listed[workload][report.best_listed[workload]].attainment
            if policy == "listed"
            else report.mixed_priority[workload][policy].attainment
            for workload in workloads
        ]
        places = [place + (number - (len(shown) - 1) / 2) * width for place in range(len(heights))]
        label = "best listed" if policy == "listed" else policy
        axes.bar(places, heights, width, color=_colour(policy), label=label)
    axes.set_xticks(range(len(workloads)), [name.replace("@", "\n@ ") for name in workloads])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylabel("deadlines met")
    axes.set_ylim(0.0, 1.05)
    axes.legend(
        fontsize=8, ncols=len(shown), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False
    )
    tidy([axes])
    return png(figure)


def _colour(policy: str) -> str:
    return COLOURS.get(policy, "#a3abb8")


def tidy(axes: Sequence[Axes]) -> None:
    """The looks that all pictures share."""
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
        each.grid(axis="y", color="#e3e6eb", linewidth=0.6)
        each.set_axisbelow(True)


def png(figure: Figure) -> bytes:
    """A picture as a file, without a mark of what made it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()
