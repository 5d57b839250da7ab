"""The virtual cluster against hand-worked times, and as a test bench of the controller."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from elastic_dit.config import ControlConfig, PlacementConfig, StageRatio
from elastic_dit.control import Controller, make_placement
from elastic_dit.control.dispatch import DispatchPolicy
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import SimulationResult, percentile
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.workload import Arrival
from elastic_dit.state import Phase
from tests.control.bench import MODEL, make_request
from tests.control.storm import Restless

E, T, D = Stage


class RoundTimes:
    """Encode 1 s, a step 8 s over the DoP, decode 2 s."""

    def stage_seconds(self, request, stage, dop=1, kind=None):  # type: ignore[no-untyped-def]
        if stage is T:
            return request.num_inference_steps * self.step_seconds(request, dop, kind)
        return {E: 1.0, D: 2.0}[stage]

    def step_seconds(self, request, dop, kind=None):  # type: ignore[no-untyped-def]
        return 8.0 / dop

    def allowed_dops(self, request):  # type: ignore[no-untyped-def]
        return (1, 2, 4, 8)


def arrivals(*at_s: float, **fields: object) -> list[Arrival]:
    return [
        Arrival(at_s=at, request=make_request(f"r{index}", **fields), label="x")
        for index, at in enumerate(at_s)
    ]


def cluster(
    gpus: int = 1, dispatch: DispatchPolicy | None = None, seed: int = 0, **overheads: object
) -> VirtualCluster:
    controller = Controller(ControlConfig(), dispatch)
    virtual = VirtualCluster(controller, RoundTimes(), overheads=Overheads(**overheads), seed=seed)  # type: ignore[arg-type]
    if gpus:
        virtual.add_node("n0", gpus=gpus, models=[MODEL])
    return virtual


def check(virtual: VirtualCluster) -> SimulationResult:
    """Run to the end; nothing may be lost or left."""
    result = virtual.run()
    virtual.controller.check()
    assert virtual.controller.refused == 0, list(virtual.controller.decisions)[-1]
    for engine in virtual.engines.values():
        assert not engine.artifacts, engine
        assert not engine.pulled, engine
        assert engine.run is None, engine
    for gpu in virtual.controller.pool:
        assert gpu.group is None, gpu
    ordered = sorted(result.spans, key=lambda span: (span.gpu, span.start))
    for one, other in itertools.pairwise(ordered):
        assert one.gpu != other.gpu or one.end <= other.start + 1e-9, (one, other)
    return result


def test_one_request_takes_the_sum_of_its_stages() -> None:
    virtual = cluster()
    virtual.submit(arrivals(5.0))
    result = check(virtual)
    outcome = result.requests[0]
    assert outcome.latency_s == 1.0 + 4 * 8.0 + 2.0
    assert [outcome.stage_s(stage) for stage in Stage] == [1.0, 32.0, 2.0]
    assert outcome.gpu_s == result.gpu_seconds == 35.0
    assert [(s.what, s.start, s.end) for s in result.spans] == [
        ("encoder", 5.0, 6.0),
        ("dit", 6.0, 38.0),
        ("decoder", 38.0, 40.0),
    ]
    assert result.ended_at == 40.0
    assert result.summary()["utilisation"] == pytest.approx(35 / 40, rel=0.02)


def test_requests_queue_in_order_of_arrival() -> None:
    virtual = cluster()
    virtual.submit(arrivals(0.0, 0.0, 0.0))
    assert [outcome.ended_at for outcome in check(virtual).requests] == [35.0, 70.0, 105.0]


def test_stages_on_their_own_gpus_overlap() -> None:
    controller = Controller(ControlConfig())
    placement = make_placement(
        PlacementConfig(ratio=StageRatio(encoder=1, dit=1, decoder=1)), ["m"]
    )
    virtual = VirtualCluster(
        controller, RoundTimes(), overheads=Overheads(load_s=3.0), placement=placement
    )
    virtual.add_node("n0", gpus=3)
    virtual.submit(arrivals(0.0, 0.0, 0.0))
    result = check(virtual)
    # Weights 3 s, then the DiT is the bottleneck: 32 s each.
    assert [outcome.ended_at for outcome in result.requests] == [38.0, 70.0, 102.0]
    assert sum(span.what == "load" for span in result.spans) == 3


def test_transfers_are_hidden_by_pulling_ahead() -> None:
    slow = {"latency_s": 1.5}
    ends = {}
    for depth in (0, 1):
        controller = Controller(ControlConfig(prefetch_depth=depth))
        virtual = VirtualCluster(
            controller,
            RoundTimes(),
            overheads=Overheads(**slow),
            placement=make_placement(
                PlacementConfig(ratio=StageRatio(encoder=1, dit=1, decoder=1)), ["m"]
            ),
        )
        virtual.add_node("n0", gpus=3)
        virtual.submit(arrivals(0.0, 0.0, 0.0))
        ends[depth] = [outcome.ended_at for outcome in check(virtual).requests]
    # Encoder to DiT and DiT to decoder: 1.5 s each; only the first pull of the DiT is not hidden.
    assert ends[0] == [38.0, 71.5, 105.0]
    assert ends[1] == [38.0, 70.0, 102.0]


def test_jitter_is_drawn_by_seed() -> None:
    def latencies(seed: int) -> list[float]:
        virtual = cluster(0, seed=seed, jitter_probability=0.3, jitter_s=2.0)
        virtual._placement = make_placement(PlacementConfig(), ["m"])
        virtual.add_node("n0", gpus=4)
        virtual.submit(arrivals(*range(20)))
        return check(virtual).latencies_s()

    assert latencies(1) == latencies(1)
    assert latencies(1) != latencies(2)


def test_a_lost_gpu_repeats_only_the_stage_it_ran() -> None:
    virtual = cluster(2, detect_s=0.5)
    virtual.submit(arrivals(0.0))
    virtual.lose(0, at_s=10.0)
    result = check(virtual)
    outcome = result.requests[0]
    # Everything was on GPU 0, so it begins again on GPU 1 once the loss is noticed.
    assert outcome.ended_at == 10.5 + 35.0
    assert outcome.attempts == 2
    assert result.alive_s[0] == 10.0


def test_a_machine_that_joins_later_takes_work() -> None:
    virtual = cluster(1)
    virtual.add_node("n1", gpus=1, models=[MODEL], at_s=4.0)
    virtual.submit(arrivals(0.0, 0.0))
    assert [outcome.ended_at for outcome in check(virtual).requests] == [35.0, 39.0]


def test_a_machine_of_more_gpus_than_a_block_has_several() -> None:
    virtual = cluster(10)
    virtual.add_node("n1", gpus=1, models=[MODEL])
    virtual.submit(arrivals(0.0))
    result = check(virtual)
    assert result.nodes == {**dict.fromkeys(range(10), "n0"), 16: "n1"}
    assert sorted(gpu.gpu for gpu in virtual.controller.pool) == [*range(10), 16]
    assert result.requests[0].phase is Phase.COMPLETED


def test_cancelled_requests_free_their_gpu_at_the_next_boundary() -> None:
    virtual = cluster()
    virtual.submit(arrivals(0.0, 0.0))
    virtual.cancel("r0", at_s=10.0)
    result = check(virtual)
    assert result.requests[0].phase is Phase.CANCELLED
    assert result.requests[0].ended_at == 10.0
    assert result.requests[1].ended_at == 17.0 + 35.0  # 1 s, two steps of 8 s, then all of r1


def test_a_run_without_gpus_comes_to_an_end() -> None:
    virtual = cluster(0)
    virtual.submit(arrivals(0.0))
    result = virtual.run()
    assert result.requests[0].phase is Phase.QUEUED
    assert result.summary()["completed"] == 0
    assert result.summary()["p99_s"] is None


def test_a_run_may_be_stopped_in_the_middle() -> None:
    virtual = cluster()
    virtual.submit(arrivals(0.0))
    result = virtual.run(until_s=20.0)
    assert result.requests[0].phase is Phase.DENOISING
    assert result.requests[0].ended_at is None


@pytest.mark.parametrize("seed", range(6))
def test_random_trouble_loses_nothing(seed: int) -> None:
    dice = random.Random(seed)
    restless = Restless(seed)
    virtual = cluster(
        8,
        restless,
        seed=seed,
        latency_s=0.1,
        jitter_probability=0.2,
        jitter_s=1.0,
        handover_s=0.05,
        group_create_s=0.2,
        detect_s=0.3,
        load_s=1.0,
    )
    virtual.submit(
        arrivals(*(dice.uniform(0, 200) for _ in range(60)), num_inference_steps=seed + 1)
    )
    for _ in range(6):
        virtual.lose(dice.randrange(8), at_s=dice.uniform(0, 200))
    for _ in range(6):
        virtual.cancel(f"r{dice.randrange(60)}", at_s=dice.uniform(0, 200))
    virtual.add_node("n1", gpus=4, models=[MODEL], at_s=dice.uniform(0, 100))
    result = check(virtual)
    assert all(outcome.phase.is_terminal for outcome in result.requests), result.requests
    phases = [outcome.phase for outcome in result.requests]
    assert phases.count(Phase.CANCELLED) <= 6
    assert phases.count(Phase.COMPLETED) >= 40


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> SimulationResult:
        virtual = cluster(8, Restless(3), latency_s=0.1, jitter_probability=0.5, jitter_s=1.0)
        virtual.submit(arrivals(*range(30)))
        virtual.lose(2, at_s=7.0)
        return virtual.run()

    assert run() == run()


def test_the_trace_opens_in_a_viewer() -> None:
    virtual = cluster(2)
    virtual.submit(arrivals(0.0, 0.0))
    trace = json.loads(json.dumps(check(virtual).chrome_trace()))
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in complete} == {0, 1}
    assert complete[0]["name"] == "r0"
    assert complete[0]["dur"] == 1e6
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"n0", "GPU 0", "GPU 1"}


def test_percentiles_interpolate() -> None:
    assert percentile([4.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)
    assert percentile([], 50) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("latency_s", -1.0), ("jitter_probability", 1.5), ("bandwidth_bytes_per_s", 0.0)],
)
def test_wrong_overheads_are_named(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"overheads.{field} = {value}"):
        Overheads(**{field: value})  # type: ignore[arg-type]
