"""Max-weight dispatch."""

from __future__ import annotations

from elastic_dit.control.dispatch import make_dispatch
from elastic_dit.events import StartStage
from elastic_dit.request import Stage
from tests.control.bench import Bench

E, T, D = Stage


def started(bench: Bench, kind: type = StartStage) -> list[tuple[str, Stage, tuple[int, ...]]]:
    return [
        (command.request.request_id, command.stage, command.gpus)
        for command in bench.commands
        if isinstance(command, kind)
    ]


def bench() -> Bench:
    return Bench(make_dispatch("pressure"))


def test_a_decode_goes_to_a_free_gpu_that_no_other_stage_waits_for() -> None:
    at = bench()
    at.join(0, stages=(T, D))
    at.join(1, stages=(E, D))
    for name in "ab":
        at.submit(name)
        at.done(name)  # encoded
    at.done("a")  # denoised on 0, where b waits to denoise
    assert started(at)[-2:] == [("a", D, (1,)), ("b", T, (0,))]


def test_a_decode_stays_where_it_was_denoised_if_nobody_waits_there() -> None:
    at = bench()
    at.join(0, stages=(T, D))
    at.join(1, stages=(E, D))
    at.submit("a")
    at.done("a")
    at.done("a")
    assert started(at)[-1] == ("a", D, (0,))


def test_a_stage_pauses_while_more_wait_for_the_next() -> None:
    at = bench()
    at.join(0, stages=(E,))
    for name in "abc":
        at.submit(name)
    at.done("a")
    at.done("b")  # two wait to denoise, one to encode
    assert [each[0] for each in started(at)] == ["a", "b"]
    at.join(1, stages=(T,))
    assert {each[0] for each in started(at)} == {"a", "b", "c"}


def test_all_that_is_asked_for_is_made_on_one_gpu() -> None:
    at = bench()
    at.join(0)
    for name in "abc":
        at.submit(name)
    for _ in range(3 * len(Stage)):
        running = [name for name in "abc" if at.controller.table.live.get(name)]
        busy = next(n for n in running if at.controller.table.live[n].group is not None)
        at.done(busy)
    assert not at.controller.table.live
