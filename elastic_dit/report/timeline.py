"""Who ran what on which GPU, over time, as a picture."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from elastic_dit.request import Stage
from elastic_dit.state import GpuId

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["STAGE_COLOURS", "Span", "draw_timeline", "waiting_over_time"]

STAGE_COLOURS = MappingProxyType(
    {Stage.ENCODER: "#3fa796", Stage.DIT: "#4c6ef5", Stage.DECODER: "#f08c3a"}
)
"""One colour a stage, told apart in print and with colour-blind eyes."""

_STAGE_NAMES = MappingProxyType(
    {Stage.ENCODER: "encode", Stage.DIT: "denoise", Stage.DECODER: "decode"}
)
_INK, _FAINT, _LANE = "#22262e", "#8a919e", "#f3f4f7"
_WIDTH_INCHES, _ROW_INCHES, _QUEUE_INCHES, _FRAME_INCHES = 12.0, 0.52, 1.0, 1.5
_DPI = 150
_BAR_HEIGHT = 0.74
_CHARACTER_SHARE = 0.0068
"""Width of one character of a label, as a share of the time axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stage of one request on its GPUs.

    Attributes
    ----------
    label : str
        The request, in a character or two.
    detail : str
        More about it, shown where the bar is wide enough.
    submitted_s : float
        When the request was submitted, seconds; no later than its first span starts.
    stage : Stage
    gpus : tuple of int
        GPUs at work, each gets a bar.
    start_s, seconds : float
        When and how long, seconds.
    """

    label: str
    stage: Stage
    gpus: tuple[GpuId, ...]
    start_s: float
    seconds: float
    detail: str = ""
    submitted_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When it ended, seconds."""
        return self.start_s + self.seconds


class Waiting(NamedTuple):
    """A step function: from ``times_s[i]`` on, ``counts[stage][i]`` requests wait for `stage`."""

    times_s: list[float]
    counts: dict[Stage, list[int]]


def waiting_over_time(spans: Iterable[Span]) -> Waiting:
    """How many requests wait for a GPU at each moment.

    Parameters
    ----------
    spans : iterable of Span
        All stages of all requests.

    Returns
    -------
    Waiting

    Examples
    --------
    >>> one = Span(label="1", stage=Stage.ENCODER, gpus=(0,), start_s=1.0, seconds=1.0)
    >>> two = Span(label="1", stage=Stage.DIT, gpus=(1,), start_s=5.0, seconds=1.0)
    >>> times_s, counts = waiting_over_time([one, two])
    >>> times_s
    [0.0, 1.0, 2.0, 5.0]
    >>> counts[Stage.ENCODER], counts[Stage.DIT]
    ([1, 0, 0, 0], [0, 0, 1, 0])
    """
    free_since: dict[str, float] = {}
    changes: dict[float, Counter[Stage]] = defaultdict(Counter)
    for span in sorted(spans, key=lambda span: span.start_s):
        changes[free_since.get(span.label, span.submitted_s)][span.stage] += 1
        changes[span.start_s][span.stage] -= 1
        free_since[span.label] = span.end_s
    times_s = sorted(changes)
    return Waiting(
        times_s,
        {stage: list(accumulate(changes[time_s][stage] for time_s in times_s)) for stage in Stage},
    )


def draw_timeline(spans: Sequence[Span], gpus: Sequence[GpuId], title: str) -> bytes:
    """Draw one row per GPU, one bar per stage, and under them the requests that wait.

    Parameters
    ----------
    spans : sequence of Span
        What ran.
    gpus : sequence of int
        Rows, from top to bottom; also those that ran nothing.
    title : str
        Headline.

    Returns
    -------
    bytes
        A PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes_inches = _ROW_INCHES * max(1, len(gpus))
    height = lanes_inches + _QUEUE_INCHES + _FRAME_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    lanes, queue = figure.subplots(
        2, 1, sharex=True, height_ratios=[lanes_inches, _QUEUE_INCHES], gridspec_kw={"hspace": 0.16}
    )
    figure.subplots_adjust(left=0.062, right=0.945, top=1 - 0.82 / height, bottom=0.5 / height)
    end_s = max((span.end_s for span in spans), default=1.0)
    _draw_lanes(lanes, spans, gpus, end_s)
    _draw_queue(queue, waiting_over_time(spans), end_s)
    _draw_head(figure, title, height)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw_lanes(axes: Axes, spans: Sequence[Span], gpus: Sequence[GpuId], end_s: float) -> None:
    row = {gpu: index for index, gpu in enumerate(gpus)}
    for index in row.values():
        axes.barh(index, end_s, height=_BAR_HEIGHT + 0.1, color=_LANE, zorder=0)
    for span in spans:
        for gpu in span.gpus:
            _draw_bar(axes, span, row[gpu], end_s)
    for gpu, index in row.items():
        busy = sum(span.seconds for span in spans if gpu in span.gpus) / end_s
        axes.text(
            1.008, index, f"{busy:.0%}", color=_FAINT, fontsize=9, va="center",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
    axes.set_yticks(list(row.values()), [f"GPU {gpu}" for gpu in row], color=_INK, fontsize=10)
    axes.set_ylim(max(1, len(gpus)) - 0.5, -0.5)
    axes.tick_params(length=0, labelbottom=False)
    axes.spines[:].set_visible(False)


def _draw_bar(axes: Axes, span: Span, row: int, end_s: float) -> None:
    share = span.seconds / end_s
    axes.barh(
        row, span.seconds, left=span.start_s, height=_BAR_HEIGHT, color=STAGE_COLOURS[span.stage],
        # An edge would hide a bar that is thinner than it.
        edgecolor="white", linewidth=0.8 if share > _CHARACTER_SHARE else 0.0, zorder=2,
    )  # fmt: skip
    grouped = len(span.gpus) > 1 and span.label
    label = f"{span.label} x{len(span.gpus)}" if grouped else span.label
    texts = (f"{label} · {span.detail}" if span.detail else label, label, span.label)
    fitting = [text for text in texts if share > _CHARACTER_SHARE * (len(text) + 0.6)]
    if fitting:
        axes.text(
            span.start_s + span.seconds / 2, row, fitting[0], color="white", fontsize=8,
            ha="center", va="center", zorder=3,
        )  # fmt: skip


def _draw_queue(axes: Axes, waiting: Waiting, end_s: float) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = [[*waiting.counts[stage], 0] for stage in Stage]
    axes.stackplot(
        [*waiting.times_s, end_s], *rows, step="post", linewidth=0, alpha=0.45,
        colors=[STAGE_COLOURS[stage] for stage in Stage],
    )  # fmt: skip
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, max([sum(column) for column in zip(*rows, strict=True)] + [1]) * 1.15)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    axes.set_xlabel("seconds", color=_FAINT, fontsize=9)
    axes.tick_params(colors=_FAINT, labelsize=9, length=3)
    axes.text(
        1.0, 0.94, "requests waiting", color=_FAINT, fontsize=9, ha="right", va="top",
        transform=axes.transAxes,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#cfd4de")


def _draw_head(figure: Figure, title: str, height: float) -> None:
    from matplotlib.patches import Patch

    figure.text(
        0.062, 1 - 0.24 / height, title, color=_INK, fontsize=13, fontweight="bold", va="top"
    )
    keys = [Patch(color=STAGE_COLOURS[stage], label=_STAGE_NAMES[stage]) for stage in Stage]
    figure.legend(
        handles=keys, loc="upper right", bbox_to_anchor=(0.952, 1 - 0.18 / height), ncols=len(keys),
        frameon=False, fontsize=9, labelcolor=_INK, handlelength=1.0, handleheight=1.0,
        columnspacing=1.4, handletextpad=0.5,
    )  # fmt: skip
