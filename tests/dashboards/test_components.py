"""What `update` puts into the data sources, over a controller that is driven by hand."""

from __future__ import annotations

import pytest
from bokeh.document import Document

from elastic_dit.config import Config
from elastic_dit.dashboards.components import PANELS, Panel, StageQueues, Timeline
from elastic_dit.dashboards.desk import FRESH_S, LOOKED_AT_S, DashboardDesk
from elastic_dit.dashboards.document import fill_document
from elastic_dit.report.timeline import STAGE_COLOURS
from elastic_dit.request import Stage
from tests.cluster.scripted import Scripted
from tests.dashboards.test_history import Watched, grown

TO_WALL = 1_000.0


class Bench(Watched):
    """One with a desk instead of a bare history."""

    def __init__(self, *args, **config) -> None:
        super().__init__(*args, **config)
        self.desk = DashboardDesk(self)
        self.history = self.desk.history

    def clock(self) -> float:
        return self.now

    def wall_clock(self, at: float) -> float:
        return at + TO_WALL

    def tick(self, after: float = 1.0) -> None:
        super().tick(after)
        self.desk.tick()


@pytest.fixture
def bench() -> Bench:
    made = Bench(Scripted())
    grown(made)
    made.submit("next")
    made.tick()
    return made


def test_every_panel_shows_the_rows_of_the_board(bench: Bench) -> None:
    board = bench.desk.look()
    for name, columns in PANELS.items():
        panel = Panel(bench.desk, name)
        panel.update()
        part = getattr(board, name)
        rows = [part] if isinstance(part, dict) else part
        assert dict(panel.source.data) == {key: [row[key] for row in rows] for key in columns}
    assert board.requests
    assert board.gpus


def test_every_field_of_a_row_is_shown_or_belongs_to_the_drawings(bench: Bench) -> None:
    board = bench.desk.look()
    for name, columns in PANELS.items():
        part = getattr(board, name)
        row = part if isinstance(part, dict) else part[0] if part else {}
        assert set(row) - set(columns) <= {"spans_ended"}


def test_a_panel_that_did_not_change_sends_nothing(bench: Bench) -> None:
    panel = Panel(bench.desk, "gpus")
    panel.update()
    sent = []
    panel.source.on_change("data", lambda attr, old, new: sent.append(new))
    panel.update()
    assert sent == []
    bench.join(7)
    bench.tick()
    panel.update()
    assert panel.source.data["gpu"] == [0, 1, 7]
    assert len(sent) == 1


def test_queues_are_those_of_the_samples(bench: Bench) -> None:
    queues = StageQueues(bench.desk)
    queues.update()
    waiting = {name: column[-1] for name, column in queues.source.data.items()}
    assert waiting["encoder"] == bench.controller.table.waiting
    assert waiting["at"] == bench.now + TO_WALL == queues.root.x_range.end
    assert queues.root.x_range.end - queues.root.x_range.start == bench.desk.look().window_s


def test_the_timeline_sends_each_ended_bar_once(bench: Bench) -> None:
    timeline = Timeline(bench.desk)
    timeline.update()
    ended = bench.history.lanes.ended
    assert len(timeline.source.data["start"]) == ended > 0
    timeline.update()
    assert len(timeline.source.data["start"]) == ended
    bench.step("r", 4)
    bench.done("r")
    bench.tick()
    timeline.update()
    assert len(timeline.source.data["start"]) == bench.history.lanes.ended > ended


def test_the_timeline_marks_promotions_and_colours_stages(bench: Bench) -> None:
    timeline = Timeline(bench.desk)
    timeline.update()
    marks = timeline.marks.data
    assert list(
        zip(marks["what"], marks["lane"], marks["before"], marks["after"], strict=True)
    ) == [
        ("promotion", "0", 1, 2),
        ("demotion", "0", 2, 1),
    ]
    assert set(marks["marker"]) == {"triangle", "inverted_triangle"}
    bars = timeline.source.data
    for stage, colour in zip(bars["stage"], bars["colour"], strict=True):
        assert colour == STAGE_COLOURS[Stage(stage)]
    wide = {alpha for dop, alpha in zip(bars["dop"], bars["alpha"], strict=True) if dop == 2}
    thin = {alpha for dop, alpha in zip(bars["dop"], bars["alpha"], strict=True) if dop == 1}
    assert min(wide) > max(thin)
    assert timeline.present.data["end"] == [bench.desk.look().at] * len(
        timeline.present.data["end"]
    )


@pytest.mark.parametrize(("gpus", "tallest"), [(1, 100), (8, 250), (64, 800)])
def test_lanes_get_thinner_not_out_of_sight(gpus: int, tallest: int) -> None:
    bench = Bench()
    bench.join(*range(gpus))
    timeline = Timeline(bench.desk)
    timeline.update()
    assert list(timeline.root.y_range.factors) == [str(gpu) for gpu in reversed(range(gpus))]
    assert timeline.root.height <= tallest


def test_boards_are_shared_and_made_only_while_somebody_looks(bench: Bench) -> None:
    first = bench.desk.look()
    assert bench.desk.look() is first
    bench.tick()
    second = bench.desk.look()
    assert second is not first
    bench.now += FRESH_S / 2
    assert bench.desk.look() is second
    bench.now += FRESH_S
    third = bench.desk.look()
    assert third.at > second.at
    bench.now += LOOKED_AT_S
    bench.desk.tick()
    assert bench.desk._board is third  # nobody has looked for long


def test_a_document_holds_every_source_and_keeps_it_up_to_date(bench: Bench) -> None:
    doc = Document()
    fill_document(bench.desk, {"pages": [], "plots": [], "prefix": "/"}, doc, 500)
    assert {root.name for root in doc.roots} == {"queues", "timeline"}
    for name in PANELS:
        assert doc.get_model_by_name(name) is not None
    assert len(doc.session_callbacks) == 1  # everything at once
    assert doc.title == "elastic-dit"
    assert Config().control.tick_s <= FRESH_S  # else every viewer would make boards of its own
