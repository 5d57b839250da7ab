"""The rows that the page shows."""

from __future__ import annotations

import json

from elastic_dit.dashboards import board as board_module
from elastic_dit.dashboards.board import build_board
from elastic_dit.request import Stage
from tests.cluster.scripted import Scripted
from tests.control.bench import MODEL
from tests.dashboards.test_history import Watched, grown

TO_WALL = 1_000.0


def build(bench: Watched):
    return build_board(bench.controller, bench.history, bench.now, TO_WALL)


def test_a_request_at_work() -> None:
    bench = Watched()
    bench.join(0)
    bench.plan(1, {0: tuple(Stage)}, reason="all stages on 1 GPU")
    bench.submit("r")
    bench.done("r")
    bench.step("r", 3)
    bench.tick()
    board = build(bench)
    summary = {"gpus": 1, "busy": 1, "running": 1, "waiting": 0, "completed": 0, "failed": 0}
    assert summary.items() <= board.summary.items()
    assert board.summary["plan_reason"] == "all stages on 1 GPU"
    [gpu] = board.gpus
    work = {"gpu": 0, "request_id": "r", "stage": "dit", "dop": 1, "step": 3, "total_steps": 4}
    assert work.items() <= gpu.items()
    assert gpu["resident"] == [f"{MODEL}/{stage}" for stage in sorted(map(str, Stage))]
    assert 0 < gpu["utilisation"] <= 1
    [request] = board.requests
    assert (request["phase"], request["step"], request["place"]) == ("denoising", 3, -1)
    assert request["gpus"] == [0]
    assert [(row["loaded"], row["planned"], row["working"]) for row in board.ratio] == [
        (1, 1, 0), (1, 1, 1), (1, 1, 0),
    ]  # fmt: skip
    assert board.decisions[0]["what"] == "start"
    assert board.decisions[-1]["what"] == "join"


def test_running_requests_come_first_then_the_last_stage_and_the_first_in_line() -> None:
    bench = Watched(prefetch_depth=0)
    bench.join(0, stages=(Stage.ENCODER,))
    for name in ("a", "b", "c"):
        bench.submit(name)
    bench.done("a")  # no GPU denoises: `a` waits, `b` encodes
    board = build(bench)
    assert [(row["request_id"], row["phase"], row["place"]) for row in board.requests] == [
        ("b", "encoding", -1), ("a", "encoded", 0), ("c", "queued", 0),
    ]  # fmt: skip
    assert board.summary["waiting"] == 2


def test_more_requests_than_are_listed_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(board_module, "REQUESTS_SHOWN", 3)
    bench = Watched()
    for number in range(5):
        bench.submit(f"r{number}")
    board = build(bench)
    assert [row["request_id"] for row in board.requests] == ["r0", "r1", "r2"]
    assert board.summary["waiting"] == 5


def test_times_are_wall_clock_and_old_spans_are_left_out() -> None:
    bench = Watched(Scripted())
    grown(bench)
    board = build(bench)
    assert board.at == bench.now + TO_WALL
    assert all(TO_WALL < span["start"] <= board.at for span in board.spans)
    assert [span["end"] for span in board.spans if span["gpu"] == 0][-1] is None
    assert [(mark["before"], mark["after"]) for mark in board.marks] == [(1, 2), (2, 1)]
    bench.now += board.window_s + 10
    later = build(bench)
    assert [span["end"] for span in later.spans] == [None]
    assert later.marks == []


def test_it_is_json() -> None:
    bench = Watched(Scripted())
    grown(bench)
    bench.tick()
    wire = build(bench).to_json()
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire
    assert list(wire) == [
        "at", "window_s", "summary", "queues", "gpus", "requests", "ratio", "decisions",
        "failures", "spans", "marks",
    ]  # fmt: skip


def test_nothing_is_there_yet() -> None:
    board = build(Watched())
    assert board.gpus == board.requests == board.decisions == board.failures == board.spans == []
    assert [row["predicted"] for row in board.ratio] == [None] * 3
