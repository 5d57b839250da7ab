"""Nobody gives a GPU up, and none is kept idle, for who cannot start there yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, actions, make_dispatch
from elastic_dit.control.dispatch import Fcfs
from elastic_dit.control.policies.contenders import contenders
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.view import ClusterView
from elastic_dit.cost import CostTimes
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.workload import Arrival
from elastic_dit.state import Phase
from tests.control.bench import Bench, make_request
from tests.simulate.test_cluster import RoundTimes

from .test_every_cluster import Fixed

E, T, D = Stage
POLICIES = ("edf", "tetriserve", "elastic", "srtf-1")


def bench(policy: str, *stages: tuple[Stage, ...]) -> Bench:
    """One GPU for each."""
    made = Bench(make_dispatch(policy))
    made.controller.view.times = CostTimes(RoundTimes())
    for gpu, held in enumerate(stages):
        made.join(gpu, stages=held)
    return made


def preempted(commands: list[events.Command]) -> list[str]:
    return [command.request_id for command in commands if isinstance(command, events.Preempt)]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_is_encoded_elsewhere_takes_a_gpu_when_that_is_done(policy: str) -> None:
    world = bench(policy, (E,), (T,), (D,))
    world.submit("later", deadline_s=1000.0, num_inference_steps=40)
    world.done("later")
    world.step("later", 1)
    world.submit("next", deadline_s=900.0, num_inference_steps=30)
    world.submit("urgent", deadline_s=80.0)
    assert world.gpus == {"later": (1,), "next": (0,)}  # `urgent` waits for the encoder
    world.do(events.Tick(), after=6.0)
    assert preempted(world.commands) == []
    world.cancel("next")
    world.aborted("next")
    assert world.gpus["urgent"] == (0,)
    assert preempted(world.commands) == []
    assert preempted(world.done("urgent")) == ["later"]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_gpu_is_idle_for_who_waits_to_be_encoded_elsewhere(policy: str) -> None:
    world = bench(policy, (E,), (T,), (D,))
    world.submit("later", deadline_s=1000.0, num_inference_steps=40)
    world.submit("urgent", deadline_s=80.0)
    world.done("later")
    assert world.gpus == {"later": (1,), "urgent": (0,)}
    world.submit("more-urgent", deadline_s=60.0)
    world.failed("later", retryable=True)
    world.do(events.Tick(), after=10.0)
    assert (world.starts["later"].attempt, world.gpus["later"]) == (2, (1,))
    assert world.controller.table.live["more-urgent"].in_line


@pytest.mark.parametrize("policy", POLICIES)
def test_who_can_be_encoded_on_a_gpu_that_denoises_takes_it(policy: str) -> None:
    world = bench(policy, (E, T, D))
    world.submit("later", deadline_s=1000.0, num_inference_steps=40)
    world.done("later")
    world.step("later", 1)
    assert preempted(world.submit("urgent", deadline_s=50.0)) == ["later"]


class Pausing(Fcfs):
    """Decides nothing while it is paused."""

    paused = False

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        if not self.paused:
            yield from super().plan(view, now)


def test_as_many_as_find_another_gpu_free_leave_the_others_alone() -> None:
    policy = Pausing()
    world = Bench(policy)
    world.join(0, stages=(E, T))
    world.submit("later")
    world.done("later")
    policy.paused = True
    for name in ("a", "b"):
        world.submit(name)
    view = world.controller.view
    jobs = [Job(view.requests[name], view) for name in ("a", "b", "later")]
    for gpu, names in (
        (1, ["a", "b", "later"]),
        (2, ["b", "later"]),
        (3, ["later"]),
    ):
        assert [job.request_id for job in contenders(view, jobs)] == names
        world.join(gpu, stages=(E,))


class Watched:
    """A policy whose every preemption must be for somebody who could start or grow there."""

    def __init__(self, policy: str) -> None:
        self._policy: Any = make_dispatch(policy)
        self.order = self._policy.order

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        for action in self._policy.plan(view, now):
            if isinstance(action, actions.Preempt) and "moves" not in action.reason:
                group = view.requests[action.request_id].group
                assert group is not None
                held = {key for gpu in group.gpus for key in view._pool[gpu].resident}
                others = [r for r in view.requests.values() if r.group is not group]
                grows = any(other.group.stage is T for other in others if other.group)
                assert grows or any(other.in_line and other.key in held for other in others)
            yield action


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(POLICIES),
    st.lists(st.sampled_from(Stage), max_size=4),
    st.lists(
        st.tuples(st.floats(0.0, 60.0), st.floats(10.0, 200.0), st.integers(1, 8)),
        min_size=2,
        max_size=6,
    ),
)
def test_with_stages_on_gpus_of_their_own_nobody_is_preempted_for_an_encode(
    policy: str, more: list[Stage], requests: list[tuple[float, float, int]]
) -> None:
    stages = [E, T, D, *more]
    controller = Controller(ControlConfig(), Watched(policy), times=CostTimes(RoundTimes()))
    placement = Fixed({gpu: (stage,) for gpu, stage in enumerate(stages)})
    cluster = VirtualCluster(controller, RoundTimes(), placement=placement)
    cluster.add_node("n0", gpus=len(stages), models=())
    cluster.submit(
        Arrival(
            at_s=at_s,
            request=make_request(f"r{n}", deadline_s=deadline_s, num_inference_steps=steps),
            label="x",
        )
        for n, (at_s, deadline_s, steps) in enumerate(requests)
    )
    result = cluster.run(until_s=2_000.0)
    assert controller.refused == 0, [d for d in controller.decisions if d.what == "refused"]
    assert all(outcome.phase is Phase.COMPLETED for outcome in result.requests)
