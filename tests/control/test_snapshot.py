"""Copies of the cluster's state."""

from __future__ import annotations

import pytest

from elastic_dit.control.snapshot import ClusterSnapshot, QueueSnapshot
from elastic_dit.events import StageLoaded
from elastic_dit.request import Stage, StageKey

from .bench import MODEL, Bench


def test_it_tells_gpus_queues_and_counts() -> None:
    bench = Bench()
    bench.join(0, stages=(Stage.ENCODER,))
    bench.join(8, stages=(), node="n1")
    bench.plan(3, {8: (Stage.DIT,)}, reason="because")
    for name in "abc":
        bench.submit(name)
    bench.done("a")
    bench.cancel("c")
    snapshot = bench.controller.snapshot(bench.now + 2.0)

    assert (snapshot.plan_epoch, snapshot.plan_reason) == (3, "because")
    assert (snapshot.live, snapshot.waiting, snapshot.cancelled) == (2, 1, 1)
    first, second = snapshot.gpus
    assert (first.request_id, first.stage, first.aborting) == ("b", Stage.ENCODER, False)
    assert first.busy_s == 6.0  # since `a` was submitted, without a gap
    assert first.alive_s == 9.0
    assert (second.node, second.loading) == ("n1", (StageKey(MODEL, Stage.DIT),))
    assert second.wanted == (StageKey(MODEL, Stage.DIT),)
    queues = {queue.key.stage: queue for queue in snapshot.queues}
    assert (queues[Stage.ENCODER].waiting, queues[Stage.ENCODER].running) == (0, 1)
    assert (queues[Stage.DIT].waiting, queues[Stage.DIT].oldest_wait_s) == (1, 3.0)


def test_an_aborting_group_is_told_as_such() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("a")
    bench.cancel("a")
    snapshot = bench.controller.snapshot(bench.now)
    assert snapshot.gpus[0].aborting
    assert snapshot.gpus[0].request_id == "a"


def test_it_travels_as_plain_data() -> None:
    bench = Bench()
    bench.join(0, 1)
    bench.plan(1, {1: (Stage.DIT,)})
    bench.submit("a")
    bench.load_failed(1, Stage.DIT, "bad")
    snapshot = bench.controller.snapshot(bench.now)
    assert ClusterSnapshot.from_wire(snapshot.to_wire()) == snapshot


def stage_of(bench: Bench, stage: Stage) -> QueueSnapshot:
    snapshot = bench.controller.snapshot(bench.now)
    return next(queue for queue in snapshot.queues if queue.key.stage is stage)


def test_utilisation_is_that_of_the_latest_window() -> None:
    bench = Bench(window_s=10.0)
    bench.join(0, stages=(Stage.ENCODER,))
    bench.now += 100.0
    bench.submit("a")
    bench.do(bench.done_event("a"), after=4.0)
    first = bench.controller.snapshot(bench.now).gpus[0]
    assert first.utilisation == pytest.approx(0.4)
    assert bench.controller.snapshot(bench.now + 8.0).gpus[0].utilisation == pytest.approx(0.2)
    assert bench.controller.snapshot(bench.now + 20.0).gpus[0].utilisation == 0.0
    bench.submit("b")
    assert bench.controller.snapshot(bench.now + 5.0).gpus[0].utilisation == pytest.approx(0.9)
    assert stage_of(bench, Stage.ENCODER).serving == 1


def test_delays_and_their_growth_are_those_of_starts_and_of_the_first_in_line() -> None:
    bench = Bench()
    bench.join(0, stages=(Stage.ENCODER,))
    for name in "abcd":
        bench.submit(name)
    growing = stage_of(bench, Stage.ENCODER)
    assert (growing.waiting, growing.delay_s) == (3, pytest.approx(1.0))  # 0 for a, 2 for b so far
    bench.do(bench.done_event("a"), after=10.0)
    bench.do(bench.done_event("b"), after=10.0)
    assert stage_of(bench, Stage.ENCODER).delay_growth > 0.5
    assert stage_of(bench, Stage.DIT).delay_growth == 0.0
    bench.do(bench.done_event("c"), after=1.0)
    bench.do(bench.done_event("d"), after=1.0)
    quiet = bench.controller.snapshot(bench.now + 100.0).queues
    assert next(q for q in quiet if q.key.stage is Stage.ENCODER).delay_s == 0.0


def test_arrivals_come_with_what_their_stages_take() -> None:
    bench = Bench(arrivals_kept=3)
    bench.join(0)
    for name, steps in (("a", 2), ("b", 4), ("c", 4), ("d", 2)):
        bench.submit(name, num_inference_steps=steps)
    bench.done("a", seconds=3.0)
    snapshot = bench.controller.snapshot(bench.now)
    assert snapshot.accepted == 4
    steps = [snapshot.shapes[arrival.shape].num_inference_steps for arrival in snapshot.arrivals]
    assert steps == [4, 4, 2]
    assert [arrival.at for arrival in snapshot.arrivals] == [3.0, 4.0, 5.0]
    assert snapshot.shapes[0].seconds == {"virtual": {Stage.ENCODER: 3.0}}


def test_it_knows_when_a_gpu_is_free() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("a")
    assert bench.controller.snapshot(bench.now).gpus[0].remaining_s is None
    bench.done("a", seconds=3.0)
    bench.step("a", 1)
    bench.step("a", 2)
    # Steps of 1 s; two of four are done.
    assert bench.controller.snapshot(bench.now + 0.5).gpus[0].remaining_s == pytest.approx(1.5)


def test_loads_tell_their_time_and_the_memory_of_weights() -> None:
    bench = Bench()
    bench.join(0, stages=())
    bench.plan(1, {0: (Stage.DIT,)})
    key = StageKey(MODEL, Stage.DIT)
    bench.do(StageLoaded(gpu=0, **key._asdict(), seconds=7.0, nbytes=5))
    loaded = stage_of(bench, Stage.DIT)
    assert (loaded.load_s, loaded.weights_bytes) == (7.0, 5)


def test_a_gpu_is_settled_once_it_holds_what_it_shall() -> None:
    bench = Bench()
    bench.join(0, stages=(Stage.ENCODER,))
    bench.plan(1, {0: (Stage.DIT,)})

    def settled() -> bool:
        return bench.controller.snapshot(bench.now).gpus[0].is_settled

    assert not settled()
    bench.dropped(0, Stage.ENCODER)
    assert not settled()
    bench.load_failed(0, Stage.DIT)
    assert settled()  # as far as it can
