"""Copies of the cluster's state."""

from __future__ import annotations

from elastic_dit.control.snapshot import ClusterSnapshot
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
