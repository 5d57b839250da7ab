"""Every policy on clusters of every size: whatever is asked for ends, and nothing is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, make_dispatch
from elastic_dit.control.dispatch import dispatch_policies
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.cost import CostTimes
from elastic_dit.events import RequestAccepted, Tick
from elastic_dit.request import Stage, StageKey
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import SimulationResult
from elastic_dit.simulate.workload import Arrival
from elastic_dit.state import GpuId, Phase, PlacementPlan
from tests.control.bench import MODEL, Bench, make_request
from tests.simulate.test_cluster import RoundTimes

E, T, D = Stage
POLICIES = dispatch_policies()


@dataclass(frozen=True)
class Fixed:
    """A placement that never changes."""

    stages: dict[GpuId, tuple[Stage, ...]]

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        if snapshot.plan_epoch:
            return None
        residency = {
            gpu: frozenset(StageKey(MODEL, stage) for stage in stages)
            for gpu, stages in self.stages.items()
        }
        return PlacementPlan(epoch=1, residency=residency, reason="fixed")


def run(
    policy: str,
    nodes: list[int],
    requests: list[tuple[float, float | None]],
    *,
    placement: Fixed | None = None,
    widest: int | None = None,
    losses: list[tuple[GpuId, float]] = [],  # noqa: B006
) -> SimulationResult:
    controller = Controller(
        ControlConfig(decisions_kept=10_000), make_dispatch(policy), times=CostTimes(RoundTimes())
    )
    controller.allowed.widest = widest
    cluster = VirtualCluster(controller, RoundTimes(), placement=placement)
    for number, gpus in enumerate(nodes):
        models = () if placement is not None else (MODEL,)
        cluster.add_node(f"n{number}", gpus=gpus, models=models)
    for gpu, at_s in losses:
        cluster.lose(gpu, at_s)
    cluster.submit(
        Arrival(at_s=at_s, request=make_request(f"r{n}", deadline_s=deadline_s), label="x")
        for n, (at_s, deadline_s) in enumerate(requests)
    )
    # Far more than one GPU takes for all of them, one after the other.
    result = cluster.run(until_s=100.0 + 100.0 * len(requests))
    assert controller.refused == 0, [d for d in controller.decisions if d.what == "refused"]
    return result


def numbers(nodes: list[int]) -> list[GpuId]:
    """The GPUs of machines of so many."""
    return [8 * number + index for number, gpus in enumerate(nodes) for index in range(gpus)]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(POLICIES),
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.floats(0.0, 40.0), st.one_of(st.none(), st.floats(1.0, 90.0))),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([None, 1, 2]),
    st.data(),
)
def test_every_request_ends(
    policy: str,
    nodes: list[int],
    requests: list[tuple[float, float | None]],
    widest: int | None,
    data: st.DataObject,
) -> None:
    gpus = numbers(nodes)
    placement = None
    if len(gpus) >= 3 and data.draw(st.booleans(), label="GPUs hold only some stages"):
        some = st.lists(st.sampled_from(Stage), min_size=1, max_size=2, unique=True)
        held = {gpu: tuple(data.draw(some)) for gpu in gpus}
        for gpu, stage in zip(gpus, Stage, strict=False):
            held[gpu] = (stage, *(other for other in held[gpu] if other is not stage))
        placement = Fixed(held)
    losses = []
    if placement is None and len(gpus) > 1:
        dying = st.lists(st.sampled_from(gpus[1:]), max_size=2, unique=True)
        losses = [(gpu, data.draw(st.floats(1.0, 60.0))) for gpu in data.draw(dying)]
    result = run(policy, nodes, requests, placement=placement, widest=widest, losses=losses)
    for outcome in result.requests:
        assert outcome.phase is Phase.COMPLETED or losses, outcome
        assert outcome.phase.is_terminal, outcome


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("gpus", [1, 2, 3, 5, 6, 7])
def test_one_machine_of_any_size_serves_two_requests(policy: str, gpus: int) -> None:
    result = run(policy, [gpus], [(0.0, None), (0.0, 60.0)])
    assert [outcome.phase for outcome in result.requests] == [Phase.COMPLETED] * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_can_only_run_on_one_gpu_does(policy: str) -> None:
    bench = Bench(make_dispatch(policy))
    bench.join(0, 1, 2, 3)
    bench.do(RequestAccepted(request=make_request("r0"), dops=(1,)))
    for stage in Stage:
        assert (bench.starts["r0"].stage, len(bench.gpus["r0"])) == (stage, 1)
        bench.done("r0")
    assert bench.controller.table.finished["r0"].phase is Phase.COMPLETED


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stage", Stage)
def test_a_stage_that_failed_is_tried_again_on_other_gpus(policy: str, stage: Stage) -> None:
    bench = Bench(make_dispatch(policy))
    bench.join(*range(16))
    bench.submit("r0")
    while bench.starts["r0"].stage is not stage:
        bench.done("r0")
    before = bench.gpus["r0"]
    bench.failed("r0", retryable=True)
    assert bench.starts["r0"].stage is stage
    assert bench.starts["r0"].attempt == 2
    is_kept = stage is D and "decoupled" not in policy and policy[:2] in ("sp", "dp", "st")
    assert is_kept or not set(before) & set(bench.gpus["r0"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stage", Stage)
def test_a_stage_that_failed_is_tried_again_where_there_is_one_gpu(
    policy: str, stage: Stage
) -> None:
    bench = Bench(make_dispatch(policy))
    bench.join(0)
    bench.submit("r0")
    while bench.starts["r0"].stage is not stage:
        bench.done("r0")
    bench.failed("r0", retryable=True)
    assert (bench.starts["r0"].stage, bench.starts["r0"].attempt) == (stage, 2)
    bench.inputs_lost("r0")
    bench.do(Tick(), after=10.0)
    assert bench.controller.table.live["r0"].group is not None
