"""Policies that share all GPUs out anew at every look: EDF best fit and SRTF."""

from __future__ import annotations

import csv

import pytest

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, make_dispatch
from elastic_dit.control.policies.edf import best_fit
from elastic_dit.control.policies.jobs import Job
from elastic_dit.cost import CostTimes, read_polynomial_cost
from elastic_dit.data import data_path
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import SimulationResult
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.readers import read_mixed_priority
from elastic_dit.state import Phase
from tests.control.bench import MODEL, Bench, make_request
from tests.control.storm import run_storm
from tests.simulate.test_cluster import RoundTimes, arrivals


def jobs(*deadlines_s: float | None, steps: int = 4) -> list[Job]:
    """Jobs of 8 s a step at DoP 1, half of it at twice the DoP."""
    bench = Bench()
    bench.controller.view.times = CostTimes(RoundTimes())
    for index, deadline_s in enumerate(deadlines_s):
        fields = {"deadline_s": deadline_s, "num_inference_steps": steps}
        bench.submit(f"r{index}", **fields)
        bench.controller.table.live[f"r{index}"].accepted_at = 0.0
    view = bench.controller.view
    return [Job(record, view) for record in view.requests.values()]


@pytest.mark.parametrize(
    ("deadlines_s", "gpus", "dops"),
    [
        ((40.0,), 1, [1]),  # 4 steps of 8 s and a decode of 2 s: in time at DoP 1
        ((20.0, 40.0), 3, [2, 1]),  # the first needs two, and one is left
        ((20.0, 40.0), 8, [4, 4]),  # what is left over widens both, the first one first
        ((40.0, 40.0), 7, [4, 2]),
        ((1.0, 40.0), 8, [8, 0]),  # hopeless: the largest there is
        ((1.0, 40.0), 3, [2, 1]),
        ((None, None), 2, [1, 1]),
        ((40.0,) * 3, 2, [1, 1, 0]),
    ],
)
def test_each_gets_the_smallest_dop_that_is_in_time(
    deadlines_s: tuple[float | None, ...], gpus: int, dops: list[int]
) -> None:
    found = best_fit(jobs(*deadlines_s), gpus, 0.0, widest=8)
    assert [found.get(f"r{index}", 0) for index in range(len(dops))] == dops


def run(name: str, seed: int, load: str) -> SimulationResult:
    path = data_path(f"mixed_priority/workloads/a14b_foreground_burst_seed{seed}_load{load}.json")
    requests = read_mixed_priority(path)
    cost = read_polynomial_cost()
    config = ControlConfig(prefetch_depth=0, ready_per_gpu=1_000)
    controller = Controller(config, make_dispatch(name), times=CostTimes(cost))
    cluster = VirtualCluster(controller, cost, overheads=Overheads(handover_s=0.003))
    cluster.add_node("n0", gpus=8, models={arrival.request.model for arrival in requests})
    cluster.submit(requests)
    result = cluster.run()
    assert controller.refused == 0, list(controller.decisions)[-1]
    assert all(outcome.phase is Phase.COMPLETED for outcome in result.requests)
    return result


def listed(policy: str, seed: int, load: str) -> tuple[float, float]:
    """Attainment and mean latency of another implementation of a policy."""
    with data_path("mixed_priority/policy_results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["profile"], row["policy"]) == ("foreground_burst", policy) and (
                row["seed"],
                row["target_load"],
            ) == (str(seed), load):
                return float(row["all_sar_submitted"]), float(row["all_mean_ms"]) / 1000
    raise LookupError(policy)


@pytest.mark.parametrize(
    ("name", "theirs", "load"),
    [
        ("edf", "edf_best_fit", "default"),
        ("edf", "edf_best_fit", "1.0"),
        ("srtf-2", "srtf_sp2", "1.0"),
    ],
)
def test_it_does_as_well_as_the_one_it_is_modelled_on(name: str, theirs: str, load: str) -> None:
    result = run(name, 0, load)
    attainment, mean_s = listed(theirs, 0, load)
    latencies = result.latencies_s()
    assert result.attainment() == pytest.approx(attainment, abs=0.05)
    assert sum(latencies) / len(latencies) == pytest.approx(mean_s, rel=0.15)


def test_the_shortest_remaining_goes_first_and_preempts() -> None:
    controller = Controller(ControlConfig(), make_dispatch("srtf-1"), times=CostTimes(RoundTimes()))
    cluster = VirtualCluster(controller, RoundTimes())
    cluster.add_node("n0", gpus=1, models=[MODEL])
    long = arrivals(0.0, num_inference_steps=10)
    short = arrivals(0.0, 10.0, num_inference_steps=1)[1:]
    cluster.submit([*long, *short])
    result = cluster.run()
    ended = {outcome.request_id: outcome.ended_at for outcome in result.requests}
    # r1 comes at 10 s, while the first step of r0 runs to 9 s and its second to 17 s.
    assert ended["r1"] == 17.0 + 1.0 + 8.0 + 2.0
    assert ended["r0"] == 28.0 + 8 * 8.0 + 2.0
    stages = [record.stage for record in result.requests[0].records]
    assert stages.count(Stage.DIT) == 2


def test_deadlines_order_the_queue() -> None:
    bench = Bench(make_dispatch("edf"))
    for name, deadline_s in (("a", None), ("b", 90.0), ("c", 30.0)):
        bench.submit(name, deadline_s=deadline_s)
    queue = bench.controller.view.queue(bench.controller.table.live["a"].key)
    assert queue is not None
    assert [record.request_id for record in queue] == ["c", "b", "a"]
    assert make_request("x").deadline_s is None


@pytest.mark.parametrize("name", ["edf", "srtf-1", "srtf-2", "srtf-4", "tetriserve"])
def test_a_storm_loses_nothing(name: str) -> None:
    storm = run_storm(2, 400, make_dispatch(name))
    assert sum(storm.terminal.values()) > 20


@pytest.mark.parametrize("name", ["edf", "tetriserve"])
def test_nobody_gets_more_gpus_than_one_machine_has(name: str) -> None:
    controller = Controller(ControlConfig(), make_dispatch(name), times=CostTimes(RoundTimes()))
    cluster = VirtualCluster(controller, RoundTimes())
    for node in ("n0", "n1", "n2"):
        cluster.add_node(node, gpus=2, models=[MODEL])
    cluster.submit(arrivals(0.0, 0.0, 0.0, deadline_s=1.0))
    started = {
        outcome.request_id: next(r for r in outcome.records if r.stage is Stage.DIT)
        for outcome in cluster.run().requests
    }
    assert {len(record.gpus) for record in started.values()} == {2}
    assert {record.started_at for record in started.values()} == {1.0}  # nobody waits for nothing


@pytest.mark.parametrize("name", ["edf", "srtf-1", "tetriserve"])
def test_no_gpu_is_kept_for_who_waits_for_a_stage_that_nobody_holds(name: str) -> None:
    bench = Bench(make_dispatch(name))
    bench.join(0)
    bench.submit("elsewhere", model="another", deadline_s=10.0, num_inference_steps=1)
    bench.submit("here", deadline_s=100.0)
    assert bench.gpus == {"here": (0,)}
