from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cost import read_stage_latencies
from elastic_dit.reproduce.bounds import fastest_s, least_gpu_s, mean_bound_s, srpt_mean_s
from elastic_dit.reproduce.ddit import GridWorkload
from elastic_dit.reproduce.runs import Simulation, simulate
from elastic_dit.simulate.ddit_grid import Cell

COST = read_stage_latencies()


@pytest.mark.parametrize("policy", ["static-1", "ddit", "elastic", "srtf-1"])
@pytest.mark.parametrize("rate", [0.25, 1.0, None])
def test_no_policy_beats_it(policy: str, rate: float | None) -> None:
    cell = Cell((1, 1, 1), rate)
    figures = simulate(Simulation(policy=policy, workload=GridWorkload(cell, 0, 30)))
    arrivals = cell.arrivals(0, 30)
    assert figures.mean_s >= mean_bound_s(arrivals, COST, 8)
    assert figures.gpu_seconds >= sum(least_gpu_s(one.request, COST) for one in arrivals) - 1e-6


def test_one_alone_takes_its_fastest_chain() -> None:
    arrivals = Cell((0, 0, 1), 0.25).arrivals(0, 1)
    assert mean_bound_s(arrivals, COST, 8) == fastest_s(arrivals[0].request, COST, 8)


jobs = st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.1, 10.0)), min_size=1, max_size=8)


@given(jobs)
def test_shortest_first_beats_first_come(found: list[tuple[float, float]]) -> None:
    now = total = 0.0
    for at_s, length_s in sorted(found):
        now = max(now, at_s) + length_s
        total += now - at_s
    longest = max(length_s for _, length_s in found)
    assert srpt_mean_s(found) <= total / len(found) + 1e-9
    assert srpt_mean_s(found) * len(found) >= longest - 1e-9


def test_all_at_once_is_a_sum_by_hand() -> None:
    # Ends at 1, 3 and 6 s.
    assert srpt_mean_s([(0.0, 3.0), (0.0, 1.0), (0.0, 2.0)]) == pytest.approx(10 / 3)
