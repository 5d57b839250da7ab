"""Parts of the page: each has a Bokeh data source, and `update` puts prepared rows into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    FactorRange,
    HoverTool,
    Range1d,
)
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent

from elastic_dit.dashboards.board import Row, span_row
from elastic_dit.dashboards.desk import DashboardDesk
from elastic_dit.dashboards.lanes import SPANS_KEPT
from elastic_dit.report.timeline import STAGE_COLOURS
from elastic_dit.request import Stage

__all__ = ["PANELS", "Panel", "StageQueues", "Timeline"]

PANELS = MappingProxyType(
    {
        "summary": (
            "gpus", "busy", "running", "waiting", "completed", "failed", "cancelled",
            "per_minute", "plan_epoch", "plan_reason", "dispatch",
        ),
        "gpus": (
            "gpu", "name", "node", "kind", "memory_bytes", "weights_bytes", "resident", "loading",
            "failed", "request_id", "stage", "dop", "target_dop", "step", "total_steps",
            "utilisation", "retiring",
        ),
        "requests": (
            "request_id", "model", "width", "height", "num_frames", "phase", "step", "total_steps",
            "dop", "gpus", "place", "eta_s", "age_s", "attempt",
        ),
        "ratio": ("stage", "predicted", "planned", "loaded", "working"),
        "decisions": ("at", "what", "subject", "gpus", "reason"),
        "failures": ("at", "what", "subject", "gpus", "reason"),
    }
)  # fmt: skip
"""Panels that are drawn as HTML in the browser, and the columns of their sources."""

_COLOURS = {str(stage): colour for stage, colour in STAGE_COLOURS.items()}
_SPAN_COLUMNS = (
    "lane", "request_id", "model", "stage", "dop", "attempt", "start", "end", "seconds", "colour",
    "alpha",
)  # fmt: skip
_SPAN_TIP = [
    ("request", "@request_id"),
    ("stage", "@model/@stage"),
    ("GPU", "@lane, one of @dop"),
    ("seconds", "@seconds{0.00}"),
    ("attempt", "@attempt"),
]
_MARK_COLUMNS = ("at", "lane", "request_id", "what", "before", "after", "colour", "marker")
_MARK_TIP = [("@what", "@before → @after GPUs"), ("request", "@request_id")]
_MARKERS = MappingProxyType(
    {"promotion": ("#2f9e44", "triangle"), "demotion": ("#d6336c", "inverted_triangle")}
)
_ALPHAS = (0.55, 0.7, 0.85, 1.0)
"""Opacity of a span by the logarithm of its degree of parallelism: the wider, the stronger."""

_CLOCK = """
const at = new Date(1000 * tick)
return at.toLocaleTimeString([], {hour12: false})
"""
_TICKS = {"base": 60, "mantissas": [1 / 2, 1], "desired_num_ticks": 6, "min_interval": 30}
_INK, _FONT = "#7a8292", "system-ui, sans-serif"
_LANE_PX, _LEAST_LANE_PX, _LANES_PX, _AXIS_PX = 26, 11, 320, 34
"""A lane of the timeline, and what all lanes together may take before they get thinner."""


def columns_of(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """Rows as the columns of a data source.

    >>> columns_of([{"a": 1, "b": 2}, {"a": 3, "b": 4}], ("a",))
    {'a': [1, 3]}
    """
    return {name: [row[name] for row in rows] for name in names}


class Panel(DashboardComponent):  # type: ignore[misc]
    """Rows of one part of the board, drawn by the page itself.

    Parameters
    ----------
    desk : DashboardDesk
    name : str
        One of `PANELS`.
    """

    def __init__(self, desk: DashboardDesk, name: str) -> None:
        self._desk, self._name = desk, name
        self.source = ColumnDataSource({column: [] for column in PANELS[name]}, name=name)

    def __repr__(self) -> str:
        return f"<Panel {self._name}>"

    @without_property_validation  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Bring the source in line with the board."""
        part = getattr(self._desk.look(), self._name)
        columns = columns_of([part] if isinstance(part, dict) else part, PANELS[self._name])
        if columns != self.source.data:
            self.source.data = columns


class StageQueues(DashboardComponent):  # type: ignore[misc]
    """Requests waiting for each stage over the last minutes, stacked."""

    def __init__(self, desk: DashboardDesk) -> None:
        self._desk = desk
        self._range = Range1d(0.0, 1.0)
        self.source = ColumnDataSource({"at": [], **{str(stage): [] for stage in Stage}})
        upwards = DataRange1d(start=0, min_interval=4, range_padding=0.15)
        self.root = _figure("queues", self._range, upwards)
        self.root.yaxis.ticker.desired_num_ticks = 4
        self.root.yaxis.ticker.min_interval = 1
        self.root.varea_stack(
            stackers=[str(stage) for stage in Stage],
            x="at",
            color=list(_COLOURS.values()),
            fill_alpha=0.75,
            source=self.source,
        )

    @without_property_validation  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Bring the source in line with the board."""
        board = self._desk.look()
        self.source.data = columns_of(board.queues, ("at", *map(str, Stage)))
        _show_until(self._range, board.at, board.window_s)


class Timeline(DashboardComponent):  # type: ignore[misc]
    """A lane per GPU, a bar per stage of a request, promotions and demotions as triangles.

    Attributes
    ----------
    source : bokeh.models.ColumnDataSource
        Bars that have ended, each sent once.
    present : bokeh.models.ColumnDataSource
        Those that go on.
    marks : bokeh.models.ColumnDataSource
        Promotions and demotions.
    """

    def __init__(self, desk: DashboardDesk) -> None:
        self._desk = desk
        self._sent = 0
        self._range = Range1d(0.0, 1.0)
        self._lanes = FactorRange(range_padding=0)
        self.source = ColumnDataSource({name: [] for name in _SPAN_COLUMNS})
        self.present = ColumnDataSource({name: [] for name in _SPAN_COLUMNS})
        self.marks = ColumnDataSource({name: [] for name in _MARK_COLUMNS})
        self.root = _figure("timeline", self._range, self._lanes)
        self.root.ygrid.grid_line_color = None
        bars = [self._bars(source) for source in (self.source, self.present)]
        marks = self.root.scatter(
            "at", "lane", size=10, marker="marker", fill_color="colour", line_color="white",
            line_width=1, source=self.marks,
        )  # fmt: skip
        self.root.add_tools(
            HoverTool(renderers=bars, tooltips=_SPAN_TIP),
            HoverTool(renderers=[marks], tooltips=_MARK_TIP),
        )

    @without_property_validation  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Send the bars that ended since the last call; bring the rest in line with the board."""
        board, to_wall = self._desk.look(), self._desk.to_wall
        lanes = self._desk.history.lanes
        ended = [_bar(span_row(span, to_wall), board.at) for span in lanes.spans_since(self._sent)]
        self._sent = lanes.ended
        if ended:
            self.source.stream(columns_of(ended, _SPAN_COLUMNS), rollover=SPANS_KEPT)
        present = [_bar(span_row(span, to_wall), board.at) for span in lanes.open]
        self.present.data = columns_of(present, _SPAN_COLUMNS)
        marks = columns_of([_triangle(mark) for mark in board.marks], _MARK_COLUMNS)
        if marks != self.marks.data:
            self.marks.data = marks
        self._lay_out(sorted({row["gpu"] for row in (*board.gpus, *board.spans)}))
        _show_until(self._range, board.at, board.window_s)

    def _lay_out(self, gpus: Sequence[int]) -> None:
        factors = [str(gpu) for gpu in reversed(gpus)]
        if factors == list(self._lanes.factors):
            return
        self._lanes.factors = factors
        lane_px = min(_LANE_PX, max(_LEAST_LANE_PX, _LANES_PX // max(1, len(gpus))))
        self.root.height = lane_px * max(1, len(gpus)) + _AXIS_PX
        self.root.yaxis.major_label_text_font_size = f"{min(11, lane_px - 1)}px"

    def _bars(self, source: ColumnDataSource) -> Any:
        return self.root.hbar(
            y="lane", left="start", right="end", height=0.78, fill_color="colour",
            fill_alpha="alpha", line_width=0.7, source=source,
        )  # fmt: skip


def _bar(row: Row, at: float) -> Row:
    end = at if row["end"] is None else row["end"]
    return {
        **row,
        "lane": str(row["gpu"]),
        "end": end,
        "seconds": end - row["start"],
        "colour": _COLOURS[row["stage"]],
        "alpha": _ALPHAS[min(len(_ALPHAS), row["dop"].bit_length()) - 1],
    }


def _triangle(row: Row) -> Row:
    what = "promotion" if row["after"] > row["before"] else "demotion"
    colour, marker = _MARKERS[what]
    return {**row, "lane": str(row["gpu"]), "what": what, "colour": colour, "marker": marker}


def _show_until(shown: Range1d, at: float, window_s: float) -> None:
    shown.update(start=at - window_s, end=at)


def _figure(name: str, x_range: Range1d, y_range: Any, height: int = 190) -> Any:
    """A drawing without a frame; the page adapts the colour of its letters to light and dark."""
    root = figure(
        name=name, height=height, x_range=x_range, y_range=y_range, sizing_mode="stretch_width",
        tools="", toolbar_location=None, background_fill_color=None, border_fill_color=None,
        outline_line_color=None, min_border_left=44, min_border_right=12, min_border_top=6,
        min_border_bottom=4,
    )  # fmt: skip
    root.xaxis.ticker = AdaptiveTicker(**_TICKS)
    root.xaxis.formatter = CustomJSTickFormatter(code=_CLOCK)
    for axis in root.axis:
        axis.update(
            axis_line_color=None, major_tick_line_color=None, minor_tick_line_color=None,
            major_label_text_font=_FONT, major_label_text_font_size="11px",
            major_label_text_color=_INK, major_label_standoff=6,
        )  # fmt: skip
    root.grid.grid_line_color = _INK
    root.grid.grid_line_alpha = 0.18
    return root
