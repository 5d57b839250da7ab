"""Placement plans become loads and drops, with draining in between."""

from __future__ import annotations

from elastic_dit import events
from elastic_dit.control.departures import Departure
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import Phase

from .bench import MODEL, Bench, kinds, only

E, T, D = Stage


def stages(commands: list[events.Command], kind: type) -> list[tuple[int, Stage]]:
    return [(c.gpu, c.stage) for c in commands if isinstance(c, kind)]


def test_a_plan_loads_what_is_missing_and_drops_what_is_not_wanted() -> None:
    bench = Bench()
    bench.join(0, stages=(E, D))
    commands = bench.plan(1, {0: (D, T)})
    assert kinds(commands) == ["DropStage"]
    assert stages(commands, events.DropStage) == [(0, E)]
    commands = bench.dropped(0, E)
    assert stages(commands, events.LoadStage) == [(0, T)]
    assert bench.loaded(0, T) == []
    assert bench.controller.pool[0].resident == {StageKey(MODEL, T), StageKey(MODEL, D)}


def test_a_gpu_that_no_plan_names_keeps_what_it_has() -> None:
    bench = Bench()
    bench.join(0, 1, stages=(E,))
    assert stages(bench.plan(1, {1: (E, T)}), events.LoadStage) == [(1, T)]
    assert bench.controller.pool[0].resident == {StageKey(MODEL, E)}


def test_plans_of_an_older_epoch_are_ignored() -> None:
    bench = Bench()
    bench.join(0, stages=(E,))
    bench.plan(5, {0: (E, T)})
    assert bench.plan(5, {0: ()}) == []
    assert bench.plan(4, {0: ()}) == []
    assert bench.controller.plan.epoch == 5


def test_a_gpu_loads_what_the_plan_in_force_wants_when_it_comes_or_comes_back() -> None:
    bench = Bench()
    bench.plan(1, {0: (E,)})
    assert stages(bench.join(0, stages=()), events.LoadStage) == [(0, E)]
    bench.lose(0)
    assert stages(bench.join(0, stages=()), events.LoadStage) == [(0, E)]


def test_a_drop_waits_for_the_running_stage_and_no_new_work_begins() -> None:
    bench = Bench()
    bench.join(0, stages=(E, T))
    bench.submit("a")
    bench.submit("b")
    assert kinds(bench.plan(1, {0: (T,)})) == []
    commands = bench.done("a")
    assert kinds(commands) == ["DropStage"]
    assert bench.controller.table.get("a").phase is Phase.ENCODED
    start = only(bench.dropped(0, E), events.StartStage)
    assert (start.request.request_id, start.stage) == ("a", T)


def test_a_plan_that_is_taken_back_ends_the_draining() -> None:
    bench = Bench()
    bench.join(0, stages=(E,))
    bench.submit("a")
    bench.submit("b")
    bench.plan(1, {0: (T,)})
    bench.plan(2, {0: (E,)})
    commands = bench.done("a")
    assert kinds(commands) == ["StartStage"]


def test_a_load_waits_until_what_is_no_longer_wanted_has_come_and_gone() -> None:
    bench = Bench()
    bench.join(0, stages=())
    bench.plan(1, {0: (T,)}, reason="first")
    assert bench.plan(2, {0: (E,)}, reason="second") == []
    assert kinds(bench.loaded(0, T)) == ["DropStage"]
    assert stages(bench.dropped(0, T), events.LoadStage) == [(0, E)]
    bench.loaded(0, E)
    told = [(d.what, d.subject, d.reason) for d in bench.controller.decisions.placement]
    assert told[1:] == [
        ("plan", "epoch 1", "first"),
        ("plan", "epoch 2", "second"),
        ("load", f"{MODEL}/dit", "first (took 1.00 s)"),
        ("drop", f"{MODEL}/dit", "second"),
        ("load", f"{MODEL}/encoder", "second (took 1.00 s)"),
    ]


def test_a_loading_gpu_gets_no_work() -> None:
    bench = Bench()
    bench.join(0, stages=(E,))
    bench.plan(1, {0: (E, T)})
    assert bench.submit("a") == []
    assert kinds(bench.loaded(0, T)) == ["StartStage"]


def test_a_failed_load_is_marked_and_not_tried_again_on_that_engine() -> None:
    bench = Bench()
    bench.join(0, 1, stages=(E,))
    bench.plan(1, {0: (E, T), 1: (E, T)})
    assert kinds(bench.load_failed(0, T, "corrupt header")) == []
    assert bench.plan(2, {0: (E, T)}) == []
    snapshot = bench.controller.snapshot(bench.now)
    assert snapshot.gpus[0].failed == {f"{MODEL}/dit": "corrupt header"}
    bench.loaded(1, T)
    bench.submit("a")
    assert bench.controller.table.get("a").phase is Phase.ENCODING
    bench.lose(0)
    assert stages(bench.join(0, stages=(E,)), events.LoadStage) == [(0, T)]


def test_requests_fail_at_once_where_no_engine_could_load_their_stage() -> None:
    bench = Bench()
    bench.join(0, stages=(T, D))
    bench.plan(1, {0: (E, T, D)})
    bench.submit("a")
    fail = only(bench.load_failed(0, E, "corrupt header"), events.Fail)
    assert (fail.failure.error_type, fail.failure.stage) == ("ModelLoadError", E)
    assert "corrupt header" in fail.failure.message
    bench.submit("b")
    assert only(bench.do(events.Tick()), events.Fail).request_id == "b"


def test_requests_wait_for_another_placement_before_they_fail() -> None:
    bench = Bench(load_grace_s=5.0)
    bench.join(0, 1, stages=(T,))
    bench.plan(1, {0: (E, T)})
    bench.submit("a")
    assert bench.load_failed(0, E) == []
    assert bench.do(events.Tick(), after=3.0) == []
    bench.plan(2, {1: (E, T)})
    assert bench.do(events.Tick(), after=30.0) == []
    assert bench.load_failed(1, E) != []


def test_with_nobody_to_load_it_the_grace_runs_out() -> None:
    bench = Bench(load_grace_s=5.0)
    bench.join(0, 1, stages=(T,))
    bench.plan(1, {0: (E, T)})
    bench.submit("a")
    bench.load_failed(0, E)
    assert only(bench.do(events.Tick(), after=6.0), events.Fail).request_id == "a"


def test_an_engine_that_never_tells_of_a_load_is_made_anew() -> None:
    bench = Bench()
    bench.join(0, 1, stages=(E,))
    bench.plan(1, {0: (E, T), 1: (E, T)})
    assert bench.do(events.Tick()) == []
    assert bench.do(events.Tick(), after=200.0) == []
    bench.loaded(1, T)
    restart = only(bench.do(events.Tick(), after=150.0), events.RestartEngine)
    assert (restart.gpu, restart.reason) == (0, f"no word of its load of {MODEL}/dit within 300 s")
    assert 0 not in bench.controller.pool
    assert bench.do(events.Tick(), after=1000.0) == []
    assert stages(bench.join(0, stages=()), events.LoadStage) == [(0, T), (0, E)]


def test_an_order_that_waits_for_running_work_is_not_overdue() -> None:
    bench = Bench()
    bench.join(0, stages=(E, D))
    bench.submit("a")
    bench.plan(1, {0: (E, T, D)})
    for _ in range(3):
        assert bench.do(events.Tick(), after=400.0) == []


def test_a_retired_machine_is_drained_and_given_back_once() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, 1, node="keep")
    bench.join(8, node="go", stages=(E,))
    bench.submit("a")
    bench.submit("b")
    bench.submit("c")
    assert bench.gpus["c"] == (8,)
    assert kinds(bench.plan(1, {}, retire=("go",), nodes=1, reason="idle")) == ["AskNodes"]
    commands = bench.done("c")  # its output is still needed there
    assert kinds(commands) == ["DropStage"]
    assert kinds(bench.dropped(8, E)) == []
    bench.done("a")
    bench.done("a")
    bench.done("a")
    assert bench.starts["c"].stage is T
    commands = bench.done("c")
    release = only(commands, events.ReleaseNode)
    assert (release.node, release.reason) == ("go", "idle")
    assert "ReleaseNode" not in kinds(bench.do(events.Tick()))


def test_a_machine_that_a_later_plan_keeps_works_again() -> None:
    bench = Bench()
    bench.join(0, node="n")
    bench.plan(1, {0: (E, T, D)}, retire=("n",))
    for stage in Stage:
        bench.dropped(0, stage)
    assert bench.submit("a") == []
    assert bench.plan(2, {}) == []
    commands = bench.plan(3, {0: (E, T, D)})
    assert stages(commands, events.LoadStage) == [(0, D), (0, T), (0, E)]


def drained(bench: Bench) -> None:
    """Machine ``go``, GPU 8, is drained beside ``keep``, GPU 0."""
    bench.join(0, node="keep")
    bench.join(8, node="go", stages=(E,))
    bench.plan(1, {}, retire=("go",), reason="idle")
    assert kinds(bench.dropped(8, E)) == ["ReleaseNode"]


def test_a_drained_machine_is_released_once_however_often_plans_name_it() -> None:
    bench = Bench()
    drained(bench)
    assert bench.plan(2, {8: (E,)}, retire=("go",)) == []
    assert bench.plan(3, {0: (E, T, D)}) == []
    assert bench.controller.departures.get("go") is Departure.DRAINED


def test_results_on_a_machine_that_is_given_back_cost_no_try_however_it_ends() -> None:
    bench = Bench(max_attempts=1)
    bench.join(8, node="go")
    bench.submit("r")
    for _ in (E, T, D):
        bench.done("r")
    bench.join(0, node="keep")
    bench.plan(1, {0: (E, T, D)}, retire=("go",))
    for stage in (E, T, D):
        bench.dropped(8, stage)
    bench.do(events.NodeLeaves(node="go"))
    bench.lose(8, "killed")
    start = only(bench.do(events.ResultLost(request_id="r")), events.StartStage)
    assert (start.stage, start.gpus) == (E, (0,))


def test_a_drained_machine_may_be_kept_until_it_leaves() -> None:
    bench = Bench()
    drained(bench)
    assert stages(bench.plan(2, {8: (E,)}), events.LoadStage) == [(8, E)]
    assert bench.do(events.NodeLeaves(node="go")) == []
    assert bench.controller.departures.get("go") is None

    bench.loaded(8, E)
    bench.plan(3, {}, retire=("go",), reason="idle again")
    bench.dropped(8, E)
    bench.do(events.NodeLeaves(node="go"))
    assert bench.plan(4, {8: (E,)}) == []
    bench.lose(8, "its worker left the cluster")
    bench.do(events.Tick())
    assert "go" not in bench.controller.departures
    told = [(d.what, d.subject, d.reason) for d in bench.controller.decisions.placement][-4:]
    assert told == [
        ("release machine", "go", "idle again"),
        ("machine leaves", "go", "idle again"),
        ("plan", "epoch 4", ""),
        ("lost", "w8", "go was given back"),
    ]


def test_denoising_moves_off_a_retiring_machine_at_its_next_step_once_there_is_room() -> None:
    bench = Bench()
    bench.join(8, node="go", stages=(E, T))
    bench.submit("a", num_inference_steps=9)
    bench.done("a")
    bench.join(0, node="keep", stages=(E,))
    assert kinds(bench.plan(1, {0: (E, T)}, retire=("go",))) == ["DropStage", "LoadStage"]
    preempt = only(bench.loaded(0, T), events.Preempt)
    assert preempt.reason == "go is to be given back"
    assert kinds(bench.do(events.Tick())) == []
    start = only(bench.preempted("a", step=3), events.StartStage)
    assert (start.gpus, start.inputs[0].step, start.attempt) == ((0,), 3, 1)


def test_no_more_runs_are_stopped_than_find_room_and_none_near_its_end() -> None:
    bench = Bench()
    bench.join(8, 9, 10, node="go")
    for name, steps in (("near", 1), ("a", 9), ("b", 9)):
        bench.submit(name, num_inference_steps=steps)
    for name in ("near", "a", "b"):
        bench.done(name)
    bench.join(0, node="keep")
    commands = bench.plan(1, {}, retire=("go",))
    assert len([c for c in commands if isinstance(c, events.Preempt)]) == 1
    assert only(commands, events.Preempt).request_id == "a"


def test_machines_are_asked_for_once_per_count() -> None:
    bench = Bench()
    ask = only(bench.plan(1, {}, nodes=2, reason="backlog"), events.AskNodes)
    assert (ask.count, ask.reason) == (2, "backlog")
    assert bench.plan(2, {}, nodes=2) == []
    assert only(bench.plan(3, {}, nodes=3), events.AskNodes).count == 3
