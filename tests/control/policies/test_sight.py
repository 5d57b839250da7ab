"""What one decision looks at, and that nothing is left out for good."""

from __future__ import annotations

import pytest

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.policies import Elastic
from elastic_dit.control.policies.by_age import AGEING
from elastic_dit.control.policies.sight import GPUS_IN_SIGHT, Sight
from elastic_dit.cost import CostTimes, read_stage_latencies
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.workload import Arrival
from tests.control.policies.worlds import arrival, denoising

NODES = 16
GPUS = 8 * NODES


def large_world(arrivals: list[Arrival], nodes: int = NODES) -> VirtualCluster:
    """Many machines of eight GPUs under the policy."""
    cost = read_stage_latencies()
    controller = Controller(ControlConfig(), Elastic(), times=CostTimes(cost))
    cluster = VirtualCluster(controller, cost)
    for node in range(nodes):
        cluster.add_node(f"n{node}", gpus=8, models=["m"])
    cluster.submit(arrivals)
    return cluster


@pytest.fixture(scope="module")
def crowded() -> VirtualCluster:
    """Every GPU at work, and six times as many requests waiting, some with a deadline."""
    waiting = [
        arrival(f"r{n}", 0.0, deadline_s=100.0 + n if n % 100 == 99 else None)
        for n in range(7 * GPUS)
    ]
    cluster = large_world(waiting)
    cluster.run(until_s=2.0)
    return cluster


def test_a_look_is_bounded_and_looks_go_round(crowded: VirtualCluster) -> None:
    view, sight = crowded.controller.view, Sight()
    seen: set[str] = set()
    for _ in range(NODES * 8 // GPUS_IN_SIGHT + 1):
        found = sight.working(view, 2.0)
        assert len(found) <= GPUS_IN_SIGHT
        assert not sight.whole
        seen.update(job.request_id for job in found)
    assert seen == {group.request_id for group in view.running(Stage.DIT)}


def test_a_small_cluster_is_seen_whole() -> None:
    cost = read_stage_latencies()
    cluster = VirtualCluster(Controller(ControlConfig(), times=CostTimes(cost)), cost)
    cluster.add_node("n0", gpus=8, models=["m"])
    cluster.submit([arrival(f"r{n}", 0.0) for n in range(30)])
    cluster.run(until_s=2.0)
    sight, view = Sight(), cluster.controller.view
    assert len(sight.working(view, 2.0)) == len(view.running(Stage.DIT)) == 8
    assert sight.whole


def test_the_first_the_oldest_and_the_most_urgent_are_in_sight(crowded: VirtualCluster) -> None:
    view, sight = crowded.controller.view, Sight()
    waiting = [r for r in view.requests.values() if r.phase.is_waiting]
    for record in waiting:
        sight.note(record)
    found = {job.request_id for job in sight.waiting(view, 2.0)}
    assert len(found) <= 2 * 24 + 16 + 16
    assert waiting[0].request_id in found
    deadlines = {r.request_id for r in waiting if r.request.deadline_s is not None}
    assert deadlines
    assert deadlines <= found
    for stage in (Stage.DIT, Stage.ENCODER):
        for _, queue in view.queues(stage):
            assert queue.head is not None
            assert queue.head.request_id in found
    assert sight.has_deadlines([])
    assert len({job.request_id for job in sight.waiting(view, 2.0, most=1)}) <= 2 + 16 + 16


def test_who_no_longer_waits_is_forgotten(crowded: VirtualCluster) -> None:
    view, sight = crowded.controller.view, Sight()
    busy = [r for r in view.requests.values() if not r.phase.is_waiting]
    for record in busy[:20]:
        sight.note(record)
    assert sight.nobody_waits
    waits = next(r for r in view.requests.values() if r.phase.is_waiting)
    sight.note(waits)
    assert not sight.nobody_waits
    sight.forget(waits)
    assert sight.nobody_waits


def test_gpus_lent_out_of_sight_are_given_back() -> None:
    first = [arrival(f"large{n}", 0.0) for n in range(NODES)]
    second = [arrival(f"small{n}", 1.0, "144p") for n in range(2 * NODES)]
    outcomes = {r.request_id: r for r in large_world([*first, *second]).run(until_s=1e4).requests}
    assert max(len(gpus) for n in range(NODES) for gpus in denoising(outcomes[f"large{n}"])) == 8
    for n in range(2 * NODES):
        started = min(record.started_at for record in outcomes[f"small{n}"].records)
        assert started < 2.5, n  # three looks of the clock, not the seconds the large ones take


def test_the_bound_on_starvation_holds_where_not_all_groups_are_in_sight() -> None:
    # Within seconds more small ones than the cluster does in half a minute.
    stream = [arrival(f"s{n}", 0.01 * n, "144p") for n in range(600)]
    large = arrival("large", 1.0)
    cluster = large_world([*stream, large], nodes=GPUS_IN_SIGHT // 8 + 1)
    outcomes = {r.request_id: r for r in cluster.run(until_s=1e4).requests}

    def denoises_at(request_id: str) -> float:
        records = outcomes[request_id].records
        return next(record.started_at for record in records if record.stage is Stage.DIT)

    begins = denoises_at("large")
    overtook = [
        a.at_s for a in stream if a.at_s > 1.0 and denoises_at(a.request.request_id) < begins
    ]
    assert overtook
    step_s = CostTimes(read_stage_latencies()).seconds(large.request, Stage.DIT)
    assert step_s is not None
    assert max(overtook) - 1.0 < AGEING * large.request.num_inference_steps * step_s
