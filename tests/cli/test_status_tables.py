from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from elastic_dit.cli.status_tables import draw_status


def gpu(number: int, **facts: Any) -> dict[str, Any]:
    idle = {
        "gpu": number, "name": f"local-{number}", "kind": "virtual", "memory_bytes": 3 * 2**30,
        "resident": [{"model": "shapes", "stage": "dit"}], "loading": [], "failed": [],
        "request_id": None, "stage": None, "busy_s": 1.5,
    }  # fmt: skip
    return {**idle, **facts}


def request(number: int, **facts: Any) -> dict[str, Any]:
    running = {
        "request_id": f"r{number}", "model": "shapes", "width": 64, "height": 48,
        "num_frames": 9, "phase": "denoising", "step": 3, "total_steps": 12, "gpus": [0, 1],
        "queue_position": 0, "eta_s": 2.5, "accepted_at": 5.0, "finished_at": None,
    }  # fmt: skip
    return {**running, **facts}


def status(**facts: Any) -> dict[str, Any]:
    empty = {
        "now": 10.0, "requests": [], "queues": [], "gpus": [], "ended": {}, "models": [],
        "decisions": [], "moves": [], "machines": [], "nodes_wanted": None,
        "plan": {"epoch": 0, "reason": "nothing planned yet"}, "planner": "",
    }  # fmt: skip
    return {**empty, **facts}


def drawn(width: int = 160, **facts: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw_status(status(**facts)))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_empty_cluster() -> None:
    assert "0 GPUs serve no model. Ended: none." in drawn()


def test_gpus_tell_what_they_hold_and_do() -> None:
    shown = drawn(
        gpus=[
            gpu(0, request_id="r1", stage="dit"),
            gpu(1, resident=[], loading=[{"model": "shapes", "stage": "decoder"}]),
            gpu(2, failed=[{"model": "shapes", "stage": "encoder", "cause": "no [weights]"}]),
        ],
        models=["shapes"],
    )
    assert "3 GPUs serve shapes" in shown
    assert "r1 dit" in shown
    assert "shapes/decoder (loading)" in shown
    assert "shapes/encoder (failed: no [weights])" in shown
    assert "3.0 GiB" in shown


def test_requests_and_queues() -> None:
    shown = drawn(
        requests=[request(1), request(2, phase="completed", finished_at=7.5, eta_s=None)],
        queues=[{"model": "shapes", "stage": "dit", "waiting": 2, "oldest_wait_s": 3.25}],
        ended={"completed": 1, "failed": 0},
    )
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert lines["r1"].split()[3:] == ["3/12", "0", "1", "5.0", "s", "2.5", "s"]
    assert "2.5 s" in lines["r2"]
    assert "Ended: 1 completed." in shown
    assert "3.2 s" in lines["shapes"]


def test_a_model_is_named_where_there_are_several() -> None:
    shown = drawn(requests=[request(1)], models=["shapes", "wan"])
    assert "r1 shapes" in " ".join(shown.split())


def test_ids_are_whole_on_a_narrow_terminal() -> None:
    name = "gen-01a22b69992c-864f70270b"
    waiting = request(1, request_id=name, total_steps=50, queue_position=12, eta_s=104.25)
    shown = drawn(80, requests=[waiting], models=["shapes"])
    assert name in shown
    assert "denoising" in shown
    assert "104.2 s" in shown


def test_many_requests_are_cut_and_live_and_late_ones_come_first() -> None:
    over = [request(n, phase="completed", finished_at=6.0) for n in range(30)]
    shown = drawn(requests=[*over, request(99)])
    assert "Requests (20 of 31)" in shown
    assert "r99" in shown
    assert "r29" in shown
    assert "r0 " not in shown


def test_latest_decisions() -> None:
    decisions = [
        {"at": float(n), "what": "start", "subject": f"r{n}", "gpus": [n], "reason": "free [yes]"}
        for n in range(9)
    ]
    shown = drawn(decisions=decisions)
    assert "r8" in shown
    assert "r3" not in shown
    assert "free [yes]" in shown


def test_moves_stay_in_sight_while_faster_decisions_come() -> None:
    moves = [
        {"at": 1.0, "what": "plan", "subject": "epoch 3", "gpus": [], "reason": "steps fell"},
        {"at": 2.0, "what": "load", "subject": "m/decoder", "gpus": [5], "reason": "steps fell"},
    ]
    starts = [
        {"at": 5.0, "what": "start", "subject": "r", "gpus": [0], "reason": "first in line"}
    ] * 9
    shown = drawn(decisions=[*moves, *starts], moves=moves)
    load = next(line for line in shown.splitlines() if "m/decoder" in line)
    assert load.split() == ["8.0", "s", "load", "m/decoder", "5", "steps", "fell"]


def test_the_plan_its_reason_and_who_made_it() -> None:
    plan = {"epoch": 4, "reason": "E:T:D = 1:5:2 on 8 GPUs: workload changed"}
    assert "Plan 0: nothing planned yet. Planned by the control plane." in drawn()
    shown = drawn(plan=plan, planner="tcp://10.0.0.1:4000")
    assert "Plan 4: E:T:D = 1:5:2 on 8 GPUs: workload changed." in shown
    assert "Planned by the scheduler actor on tcp://10.0.0.1:4000." in shown


def test_machines_are_shown_where_there_are_several_or_some_are_asked_for() -> None:
    one = {"machine": "a", "gpus": [0, 1], "departure": None}
    other = {"machine": "b", "gpus": [8], "departure": "retiring"}
    assert "Machines" not in drawn(machines=[one])
    assert "Machines (2 wanted)" in drawn(machines=[one], nodes_wanted=2)
    shown = drawn(machines=[one, other])
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert lines["a"] == ["a", "0", "1", "serving"]
    assert lines["b"] == ["b", "8", "retiring"]
