"""TetriServe: who is critical, and how GPUs are packed."""

from __future__ import annotations

import pytest

from elastic_dit.control.policies.tetriserve import pack

from .test_preemptive import jobs, listed, run


@pytest.mark.parametrize(
    ("deadlines_s", "gpus", "dops"),
    [
        # 4 steps of 8, 4, 2 or 1 s, and a decode of 2 s: 34, 18, 10 or 6 s.
        ((40.0,), 1, [1]),
        ((7.0, 40.0), 9, [8, 1]),  # the first is critical: without GPUs now it is late
        ((6.0, 6.5), 8, [8, 0]),  # of two that are, one can be in time
        ((5.0, 6.5), 8, [0, 8]),  # what is late anyway gets only what is left
        ((5.0, 40.0), 2, [1, 1]),
        ((5.0, None), 1, [1, 0]),
        ((20.0, 40.0), 3, [2, 1]),  # both could wait: in turn, each what it needs
        ((20.0, 40.0), 8, [4, 4]),  # what is left over widens both, the first one first
    ],
)
def test_most_are_in_time(
    deadlines_s: tuple[float | None, ...], gpus: int, dops: list[int]
) -> None:
    found = pack(jobs(*deadlines_s), gpus, 0.0, widest=8)
    assert [found.get(f"r{index}", 0) for index in range(len(dops))] == dops


def test_the_narrowest_of_the_critical_go_first() -> None:
    wide, *narrow = found = jobs(6.0, 6.5, 6.5)
    for job in narrow:
        job.times.step_s = {1: 1.0}
    assert pack([wide], 8, 0.0, widest=8) == {"r0": 8}
    assert pack(found, 8, 0.0, widest=8) == {
        "r1": 1,
        "r2": 1,
        "r0": 4,
    }  # two in time instead of one


def test_it_does_as_well_as_the_one_it_is_modelled_on() -> None:
    result = run("tetriserve", 0, "default")
    attainment, mean_s = listed("tetriserve_continuous", 0, "default")
    latencies = result.latencies_s()
    assert result.attainment() == pytest.approx(attainment, abs=0.05)
    assert sum(latencies) / len(latencies) == pytest.approx(mean_s, rel=0.15)
