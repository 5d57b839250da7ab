from __future__ import annotations

import pytest

from elastic_dit.errors import ConfigError
from elastic_dit.reproduce.ddit import GridWorkload
from elastic_dit.reproduce.runs import Simulation, simulate, simulate_all
from elastic_dit.simulate.ddit_grid import MULTI_NODE, Cell

BURST = Cell((1, 1, 1), None)


def simulations() -> list[Simulation]:
    return [
        Simulation(policy=policy, workload=GridWorkload(BURST, seed, 12))
        for policy in ("static-1", "ddit")
        for seed in (0, 1)
    ]


def test_processes_change_nothing() -> None:
    told: list[int] = []
    alone = simulate_all(simulations(), processes=1)
    together = simulate_all(simulations(), processes=2, done=told.append)
    assert together == alone
    assert sum(told) == len(alone) == 4
    assert all(run.completed == run.submitted == 12 and run.refused == 0 for run in alone)


def test_more_machines_are_faster() -> None:
    one, eight = (
        simulate(Simulation(policy="ddit", workload=GridWorkload(BURST, 0, 24), **where))
        for where in ({}, {"deployment": MULTI_NODE})
    )
    assert eight.mean_s < one.mean_s / 2


def test_a_hand_over_costs_what_it_is_said_to() -> None:
    workload = GridWorkload(Cell((1, 0, 0), None), 0, 1)
    free, charged = (
        simulate(Simulation(policy="static-1", workload=workload, handover_s=seconds))
        for seconds in (0.0, 1.0)
    )
    assert charged.mean_s >= free.mean_s
    promoted = GridWorkload(Cell((0, 0, 1), None), 0, 12)
    free, charged = (
        simulate(Simulation(policy="ddit", workload=promoted, handover_s=seconds))
        for seconds in (0.0, 1.0)
    )
    assert charged.mean_s > free.mean_s + 0.5


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match="nonesuch"):
        simulate(Simulation(policy="nonesuch", workload=GridWorkload(BURST, 0, 1)))
