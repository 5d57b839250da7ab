"""The ordinary life of requests, by hand."""

from __future__ import annotations

from elastic_dit import events
from elastic_dit.request import Stage
from elastic_dit.state import Phase

from .bench import Bench, kinds, make_request, only


def test_one_request_on_one_gpu_goes_through_its_three_stages() -> None:
    bench = Bench()
    bench.join(0)
    start = only(bench.submit("r"), events.StartStage)
    assert (start.stage, start.gpus, start.inputs) == (Stage.ENCODER, (0,), ())

    dit = only(bench.done("r"), events.StartStage)
    assert (dit.stage, dit.attempt) == (Stage.DIT, 1)
    assert dit.epoch > start.epoch
    assert dit.inputs == (bench.made[0],)

    for step in (1, 2, 3, 4):
        assert kinds(bench.step("r", step)) == []
    commands = bench.done("r")
    assert kinds(commands) == ["Release", "StartStage"]
    assert commands[0].artifact == bench.made[0]
    assert commands[1].inputs == (bench.made[1],)

    commands = bench.done("r")
    assert kinds(commands) == ["Release", "Complete"]
    complete = only(commands, events.Complete)
    assert complete.result == bench.made[2]
    assert [record.stage for record in complete.records] == list(Stage)
    assert [record.gpus for record in complete.records] == [(0,)] * 3
    assert bench.controller.table.get("r").phase is Phase.COMPLETED


def test_stages_on_their_own_gpus_overlap_requests() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, stages=(Stage.ENCODER,))
    bench.join(1, stages=(Stage.DIT,))
    bench.join(2, stages=(Stage.DECODER,))
    bench.submit("a")
    assert bench.submit("b") == []
    commands = bench.done("a")
    assert [(c.request.request_id, c.stage, c.gpus) for c in commands] == [
        ("a", Stage.DIT, (1,)),
        ("b", Stage.ENCODER, (0,)),
    ]


def test_later_stages_go_first_and_requests_in_order() -> None:
    bench = Bench(prefetch_depth=0)
    bench.submit("a")
    bench.submit("b")
    bench.join(0)
    assert bench.starts["a"].stage is Stage.ENCODER
    for _ in range(3):
        bench.done("a")
        assert "b" not in bench.starts or bench.starts["a"].stage is Stage.DECODER
    assert bench.starts["b"].stage is Stage.ENCODER


def test_what_is_stale_or_repeated_changes_nothing() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("r")
    assert bench.submit("r") == []
    assert bench.join(0) == []
    encoded = bench.done_event("r")
    bench.done("r")
    assert bench.do(encoded) == []
    assert bench.do(events.StepDone(request_id="r", attempt=1, epoch=99, step=1)) == []
    assert bench.do(events.StepDone(request_id="x", attempt=1, epoch=1, step=1)) == []
    bench.step("r", 2)
    assert bench.step("r", 2) == []
    assert bench.step("r", 1) == []
    assert bench.controller.progress("r", bench.now).step == 2
    assert bench.lose(7) == []
    assert bench.cancel("x") == []


def test_progress_tells_position_and_step() -> None:
    bench = Bench()
    bench.join(0)
    for name in "abc":
        bench.submit(name)
    progress = bench.controller.progress("c", bench.now, at=5.0)
    assert (progress.phase, progress.queue_position, progress.at) == (Phase.QUEUED, 1, 5.0)
    assert progress.eta_s is None
    bench.done("a")
    bench.step("a", 1)
    progress = bench.controller.progress("a", bench.now)
    assert (progress.phase, progress.step, progress.total_steps) == (Phase.DENOISING, 1, 4)
    assert progress.dop == 1
    assert bench.controller.progress("nobody", bench.now) is None


def test_eta_counts_down_once_the_stages_are_known() -> None:
    bench = Bench()
    bench.join(0)
    for name in "ab":
        bench.submit(name)
    for name in "ab":
        if name == "a":
            bench.done("a", 2.0)
        else:
            assert bench.controller.progress("b", bench.now).eta_s == 2.0 + 4 * 1.0 + 3.0
            bench.done("b", 2.0)
            assert bench.controller.progress("b", bench.now).eta_s == 4 * 1.0 + 3.0
        for step in (1, 2, 3, 4):
            bench.step(name, step)
        bench.done(name, 1.0)
        assert bench.controller.progress("a", bench.now).phase in (
            Phase.DECODING,
            Phase.COMPLETED,
        )
        bench.done(name, 3.0)
    assert bench.controller.progress("b", bench.now).eta_s == 0.0


def test_changed_names_each_request_once() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("a")
    assert bench.controller.take_changed() == ("a",)
    assert bench.controller.take_changed() == ()
    bench.done("a")
    bench.step("a", 1)
    assert bench.controller.take_changed() == ("a",)


def test_a_forgotten_id_can_be_used_anew() -> None:
    bench = Bench()
    bench.submit("r")
    bench.controller.forget("r")
    assert "r" in bench.controller.table.live, "a live request is not forgotten"

    bench.do(events.CancelRequested(request_id="r", reason="test"))
    assert not bench.controller.admit(make_request("r"), bench.now)
    bench.controller.forget("r")
    assert bench.controller.admit(make_request("r"), bench.now)
    bench.submit("r")
    assert bench.controller.table.live["r"].accepted_at == bench.now
