"""Requests at a forced degree: on their own, on the right GPUs, and the policy comes back."""

from __future__ import annotations

from typing import Any

from elastic_dit import events
from elastic_dit.request import Stage, StageKey

from .bench import Bench

ALL = frozenset(("m", stage) for stage in Stage)


def join(bench: Bench, gpu: int, kind: str) -> None:
    bench.do(
        events.EngineJoined(
            gpu=gpu, name=f"w{gpu}", node="n", kind=kind, memory_bytes=0, resident=ALL
        )
    )


def bench_of(*kinds: str) -> Bench:
    bench = Bench(prefetch_depth=0)
    for gpu, kind in enumerate(kinds):
        join(bench, gpu, kind)
    return bench


def announce(bench: Bench, name: str, dop: int, kind: str = "a") -> None:
    bench.controller.forced.announce(name, dop, kind, bench.now)


def group(bench: Bench, name: str) -> Any:
    return bench.controller.table.live[name].group


def test_runs_at_its_degree_and_nothing_else_meanwhile() -> None:
    bench = bench_of("a", "a", "a", "a")
    bench.submit("before")
    announce(bench, "r", 2)
    bench.submit("r")
    bench.submit("after")
    assert group(bench, "r") is None  # the one at work ends first
    bench.done("before")  # the encoder; its next stage must wait
    assert group(bench, "before") is None
    assert group(bench, "r").stage is Stage.ENCODER
    bench.done("r")
    assert group(bench, "r").gpus == (0, 1)
    bench.done("r")
    assert group(bench, "r").gpus == (0,)
    assert group(bench, "after") is None
    bench.done("r")
    assert group(bench, "before") is not None
    assert group(bench, "after") is not None
    assert "none" in repr(bench.controller.forced)


def test_runs_on_aligned_gpus_of_its_kind() -> None:
    bench = bench_of("b", "a", "a", "a", "b", "b")
    announce(bench, "r", 2)
    bench.submit("r")
    bench.done("r")
    assert group(bench, "r").gpus == (2, 3)


def test_as_many_as_fit_run_side_by_side() -> None:
    bench = bench_of("a", "a", "a", "a")
    for name in ("r", "s", "t"):
        announce(bench, name, 2)
    for name in ("r", "s", "t"):
        bench.submit(name)
    for name in ("r", "s", "t"):
        bench.done(name)
    at_work = {name: group(bench, name) and group(bench, name).gpus for name in ("r", "s", "t")}
    assert sorted(filter(None, at_work.values())) == [(0, 1), (2, 3)]


def test_one_that_never_comes_is_forgotten() -> None:
    bench = bench_of("a")
    announce(bench, "never", 1)
    bench.submit("r")
    assert group(bench, "r") is not None
    bench.now += 100.0
    bench.submit("s")
    assert repr(bench.controller.forced) == "<ForcedDegrees none>"


def test_one_that_is_cancelled_lets_the_others_go_on() -> None:
    bench = bench_of("a", "a")
    announce(bench, "r", 4)  # more than there are: it waits for ever
    bench.submit("r")
    bench.done("r")
    bench.submit("s")
    assert group(bench, "s") is None
    assert bench.controller.table.queues[StageKey("m", Stage.DIT)].head.request_id == "r"
    bench.cancel("r")
    assert group(bench, "s") is not None


def test_one_that_cannot_be_started_holds_nobody_up_for_ever() -> None:
    bench = bench_of("a", "a")
    announce(bench, "r", 2)
    bench.submit("r")
    bench.submit("s")
    bench.lose(1)
    bench.done("r")
    assert group(bench, "r") is None
    for _ in range(10):
        bench.do(events.Tick(), after=7.0)
    assert repr(bench.controller.forced) == "<ForcedDegrees none>"
    assert group(bench, "r").dop == 1
