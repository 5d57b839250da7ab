"""What the page remembers, told by a controller that is driven by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from elastic_dit import events
from elastic_dit.control.actions import Resize
from elastic_dit.dashboards import history, lanes
from elastic_dit.dashboards.history import History
from elastic_dit.request import Stage
from tests.cluster.scripted import Scripted
from tests.control.bench import MODEL, Bench


class Watched(Bench):
    """A bench with a history that looks on."""

    def __init__(self, dispatch: Any = None, **config: Any) -> None:
        super().__init__(dispatch, **config)
        self.history = History()

    def do(self, event: events.Event, after: float = 1.0) -> list[events.Command]:
        commands = super().do(event, after)
        self.history.note(self.controller, event, commands, self.now)
        return commands

    def tick(self, after: float = 1.0) -> None:
        self.do(events.Tick(), after)
        self.history.tick(self.controller, self.now)

    def spans(self) -> list[tuple[Any, ...]]:
        return as_tuples(self.history.lanes.spans_since(0))


def as_tuples(spans: Iterable[lanes.Span]) -> list[tuple[Any, ...]]:
    return [(each.gpu, each.stage, each.dop, each.start, each.end) for each in spans]


def test_each_stage_of_a_request_is_a_span() -> None:
    bench = Watched()
    bench.join(0)
    bench.submit("r")
    began = bench.now
    assert as_tuples(bench.history.lanes.open) == [(0, Stage.ENCODER, 1, began, float("inf"))]
    for _ in Stage:
        bench.done("r")
    assert bench.spans() == [
        (0, stage, 1, began + index, began + index + 1) for index, stage in enumerate(Stage)
    ]
    assert not list(bench.history.lanes.open)


def grown(bench: Watched) -> None:
    """Runs request `r` on GPU 0, then on 0 and 1, then on 0 again."""
    bench.join(0, 1)
    bench.submit("r")
    bench.done("r")
    for step, gpus in ((1, (0, 1)), (2, (0,))):
        bench.controller.dispatch.orders.append(Resize("r", gpus, "as the test says"))
        bench.tick()
        bench.step("r", step)
    bench.freed("r", 1)


def test_promotion_and_demotion_are_marked_on_the_master() -> None:
    bench = Watched(Scripted())
    grown(bench)
    marks = [(m.gpu, m.request_id, m.before, m.after) for m in bench.history.lanes.marks]
    assert marks == [(0, "r", 1, 2), (0, "r", 2, 1)]
    dops = [(gpu, dop) for gpu, stage, dop, *_ in bench.spans() if stage is Stage.DIT]
    assert dops == [(0, 1), (1, 1), (0, 2), (1, 2), (1, 1)]
    bench.tick()
    bench.step("r", 4)  # a tick forgets degrees of groups that are gone, not this one's
    assert len(bench.history.lanes.marks) == 2


def test_a_gpu_that_is_lost_ends_its_span_and_is_a_trouble() -> None:
    bench = Watched()
    bench.join(0)
    bench.submit("r")
    bench.lose(0, "killed")
    assert [span[:2] for span in bench.spans()] == [(0, Stage.ENCODER)]
    [trouble] = bench.history.troubles
    assert (trouble.what, trouble.gpus, trouble.reason) == ("engine lost", (0,), "killed")


def test_failures_of_stages_loads_and_requests_are_troubles() -> None:
    bench = Watched()
    bench.join(0)
    bench.plan(1, {0: tuple(Stage)})
    bench.submit("r")
    bench.failed("r")
    bench.load_failed(0, Stage.DIT, "bad weights")
    told = [(t.what, t.subject, t.gpus) for t in bench.history.troubles]
    assert told == [
        ("stage failed", "r", ()),
        ("request failed", "r", ()),
        ("load failed", f"{MODEL}/dit", (0,)),
    ]
    assert bench.history.troubles[1].reason == "encoder: ValueError: boom"


def test_samples_count_who_waits_and_the_rate_of_completions() -> None:
    bench = Watched()
    bench.submit("a")
    bench.submit("b")
    bench.tick()
    bench.history.tick(bench.controller, bench.now + history.SAMPLE_S / 4)  # too early for another
    assert [sample.waiting for sample in bench.history.samples] == [(2, 0, 0)]
    assert bench.history.per_minute(bench.now) == 0.0
    bench.join(0)
    for request in ("a", "a", "a"):
        bench.done(request)
    bench.tick()
    first, last = bench.history.samples
    assert last.completed == 1
    assert bench.history.per_minute(bench.now) == pytest.approx(60 / (last.at - first.at))


def test_prediction_follows_the_times_that_were_seen() -> None:
    bench = Watched()
    bench.join(*range(8))
    bench.tick()
    assert bench.history.predicted is None
    bench.submit("r", num_inference_steps=1)
    for seconds in (1.0, 10.0, 1.0):
        if bench.starts["r"].stage is Stage.DIT:
            bench.step("r", 1)
        bench.done("r", seconds)
    bench.tick(after=history.PREDICT_S)
    counts = bench.history.predicted
    assert counts is not None
    assert sum(counts.values()) == 8
    assert counts[Stage.DIT] >= counts[Stage.ENCODER] >= 1


def test_every_ring_is_bounded() -> None:
    bench = Watched(max_attempts=10**6, finished_kept=10)
    bench.join(0)
    for number in range(1500):
        bench.submit(f"r{number}")
        for _ in Stage:
            bench.done(f"r{number}")
    assert bench.history.lanes.ended == 4500
    assert len(bench.spans()) == lanes.SPANS_KEPT
    assert len(list(bench.history.lanes.spans_since(4498))) == 2
    for number in range(history.TROUBLES_KEPT + 5):
        bench.join(1, name=f"again{number}")
        bench.lose(1)
    assert len(bench.history.troubles) == history.TROUBLES_KEPT
    for _ in range(2 * round(history.WINDOW_S / history.SAMPLE_S)):
        bench.history.tick(bench.controller, bench.now)
        bench.now += history.SAMPLE_S
    assert bench.now - bench.history.samples[0].at == pytest.approx(history.WINDOW_S)


def test_another_controller_ends_what_the_last_one_left_open() -> None:
    bench = Watched()
    bench.join(0)
    bench.submit("r")
    successor = Watched()
    bench.history.tick(successor.controller, bench.now + 1)
    assert not list(bench.history.lanes.open)
