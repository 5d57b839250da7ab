"""Order of service, choice of GPU, prefetch, and policies that misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, actions, dispatch_policies, make_dispatch
from elastic_dit.control.dispatch import Fcfs
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

from .bench import Bench, kinds, make_request, only

E, T, D = Stage


def test_policies_are_found_by_name() -> None:
    assert "fcfs" in dispatch_policies()
    assert repr(make_dispatch("fcfs")) == "Fcfs()"
    with pytest.raises(ConfigError, match=r"control.dispatch = 'x': must be one of .*fcfs"):
        Controller(ControlConfig(dispatch="x"))


def test_a_decode_stays_on_the_gpu_that_denoised() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, 1, 2)
    for name in "abc":
        bench.submit(name)
    assert bench.gpus == {"a": (0,), "b": (1,), "c": (2,)}
    for name in "cba":
        bench.done(name)
        bench.done(name)
    assert bench.gpus == {"a": (0,), "b": (1,), "c": (2,)}
    assert {start.stage for start in bench.starts.values()} == {D}


def test_a_gpu_that_failed_a_request_is_its_last_choice() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("r")
    assert bench.failed("r", retryable=True) != []
    assert bench.gpus["r"] == (0,)  # there is no other
    bench.join(1)
    bench.failed("r", retryable=True)
    bench.do(events.Tick())
    assert bench.gpus["r"] == (1,)


def test_models_share_a_gpu_in_order_of_acceptance() -> None:
    bench = Bench()
    for name, model in (("a", "m"), ("b", "n"), ("c", "m")):
        bench.submit(name, model=model)
    both = frozenset((model, Stage.ENCODER) for model in ("m", "n"))
    bench.do(
        events.EngineJoined(
            gpu=0, name="w", node="n", kind="virtual", memory_bytes=0, resident=both
        )
    )
    order = ["a"]
    for _ in range(2):
        order.append(only(bench.done(order[-1]), events.StartStage).request.request_id)
    assert order == ["a", "b", "c"]


def test_a_stage_pauses_while_enough_of_its_output_waits() -> None:
    bench = Bench(ready_per_gpu=2, prefetch_depth=0)
    bench.join(0, stages=(E,))
    for name in "abcd":
        bench.submit(name)
    bench.done("a")
    assert kinds(bench.done("b")) == []
    commands = bench.join(1, stages=(T,))
    assert [(c.request.request_id, c.stage) for c in commands] == [("a", T), ("c", E)]


# ----------------------------------------------------------------------------------- prefetch
def test_inputs_are_pulled_while_the_decoder_is_busy() -> None:
    bench = Bench()
    bench.join(0, stages=(E, T))
    bench.join(1, stages=(D,))
    for name in "ab":
        bench.submit(name)
        while bench.starts[name].stage is not T:
            bench.done(name)
        commands = bench.done(name)
    prefetch = only(commands, events.Prefetch)
    assert (prefetch.request_id, prefetch.gpu, prefetch.stage) == ("b", 1, D)
    assert prefetch.inputs == (bench.made[-1],)
    start = only(bench.done("a"), events.StartStage)
    assert (start.request.request_id, start.gpus) == ("b", (1,))
    commands = bench.done("b")
    # The original goes; the copy is the decoder's own business once it has started from it.
    assert [c.artifact.gpu for c in commands if isinstance(c, events.Release)] == [0]


def test_no_more_is_pulled_ahead_than_the_depth_allows() -> None:
    for depth in (0, 1, 2):
        bench = Bench(prefetch_depth=depth)
        bench.join(0, stages=(E, T))
        bench.join(1, stages=(D,))
        for name in "abcd":
            bench.submit(name)
            while bench.starts[name].stage is not T:
                bench.done(name)
            bench.done(name)
        assert kinds(bench.commands).count("Prefetch") == depth


def test_a_copy_that_is_not_used_is_released() -> None:
    bench = Bench()
    bench.join(0, stages=(E, T))
    bench.join(1, stages=(D,))
    for name in "ab":
        bench.submit(name)
        while bench.starts[name].stage is not T:
            bench.done(name)
        bench.done(name)
    commands = bench.join(2, stages=(D,))
    assert only(commands, events.StartStage).gpus == (2,)
    assert only(commands, events.Release).artifact.gpu == 1
    bench.submit("c")
    bench.done("c")
    bench.done("c")
    assert only(bench.cancel("c"), events.Cancelled)
    assert not any(gpu.prepared for gpu in bench.controller.pool)


def test_a_dit_pulls_ahead_only_near_its_end() -> None:
    bench = Bench()
    bench.join(0, stages=(E,))
    bench.join(1, stages=(T,))
    for name in "ab":
        bench.submit(name, num_inference_steps=6)
    bench.done("a")
    assert "Prefetch" not in kinds(bench.done("b"))
    assert [kinds(bench.step("a", step)) for step in (1, 2, 3, 4)] == [[], [], [], ["Prefetch"]]


# ---------------------------------------------------------------------- policies that misbehave
class Scripted(Fcfs):
    """Asks for what it is told to."""

    watches_clock = True
    script: tuple[actions.Action, ...] = ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        yield from self.script


WRONG = [
    (actions.Start("nobody", (1,), ""), "no live request has this id"),
    (actions.Start("waits", (), ""), "no GPU is named"),
    (actions.Start("waits", (0,), ""), "GPUs [0] are not free for m/encoder"),
    (actions.Start("waits", (1, 9), ""), "GPUs [9] are not free for m/encoder"),
    (actions.Start("runs", (1,), ""), "the request is denoising"),
    (actions.Resize("waits", (0, 1), ""), "the request is queued"),
    (actions.Resize("runs", (0,), ""), "the group is as it shall be"),
    (actions.Resize("runs", (1,), ""), "no member stays to pass the latents on"),
    (actions.Resize("runs", (0, 9), ""), "GPUs [9] are not free for m/dit"),
    (actions.Preempt("waits", ""), "the request is queued"),
    (actions.Prefetch("waits", 0, ""), "the request has no inputs to pull ahead"),
    (actions.Prefetch("encoded", 1, ""), "GPU 1 has no slot to pull ahead"),
]


@pytest.mark.parametrize(("action", "problem"), WRONG, ids=lambda value: str(value)[:50])
def test_what_cannot_be_done_is_refused_and_logged(action: actions.Action, problem: str) -> None:
    """GPU 0 denoises `runs`, GPU 1 is free; `encoded` and `waits` wait."""
    policy = Scripted()
    bench = Bench(policy)
    bench.join(0, 1)
    for name in ("runs", "encoded", "waits"):
        bench.submit(name)
    for name in ("runs", "encoded"):
        policy.script = (actions.Start(name, (0,), "by hand"),)
        bench.do(events.Tick())
        policy.script = ()
        bench.done(name)
    policy.script = (actions.Start("runs", (0,), "by hand"),)
    bench.do(events.Tick())

    policy.script = (action, actions.Start("waits", (1,), "not asked for any more"))
    controller = bench.controller
    assert controller.handle(events.Tick(), bench.now) == []
    assert controller.refused == 1
    last = list(controller.decisions)[-1]
    assert last.what == "refused"
    assert last.reason.endswith(problem)


class Broken(Fcfs):
    """Raises once it has something to do."""

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        yield from super().plan(view, now)
        raise ZeroDivisionError("no speed")

    def order(self, request: RequestView) -> tuple[object, ...]:
        return ()


def test_a_policy_that_raises_loses_nothing() -> None:
    controller = Controller(ControlConfig(), Broken())
    joined = events.EngineJoined(
        gpu=0,
        name="w",
        node="n",
        kind="virtual",
        memory_bytes=0,
        resident=frozenset({("m", Stage.ENCODER)}),
    )
    controller.handle(joined, 0.0)
    commands = controller.handle(events.RequestAccepted(request=make_request("r")), 1.0)
    assert kinds(commands) == ["StartStage"]
    assert controller.refused == 2
    assert "ZeroDivisionError: no speed" in list(controller.decisions)[-1].reason


class ByPriority(Fcfs):
    """Orders each queue by priority."""

    def order(self, request: RequestView) -> tuple[object, ...]:
        return (-request.request.priority,)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        for stage in (D, T, E):
            for key, queue in view.queues(stage):
                while queue.head is not None and view.free(key):
                    yield actions.Start(queue.head.request_id, (view.free(key)[0],), "priority")


def test_a_policy_may_order_the_queues() -> None:
    bench = Bench(ByPriority(), prefetch_depth=0)
    for name, priority in (("a", 0), ("b", 2), ("c", 1), ("d", 2)):
        bench.submit(name, priority=priority)
    queue = bench.controller.view.queue(bench.controller.table.get("a").key)
    assert [record.request_id for record in queue] == ["b", "d", "c", "a"]
    assert bench.controller.progress("c", 0.0).queue_position == 2
