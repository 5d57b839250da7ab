"""Steps that are told, and steps that are not."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.worker.step_pace import StepPace


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=30), st.floats(0.0, 4.0))
def test_first_and_one_an_interval_but_not_the_last(gaps: list[float], interval_s: float) -> None:
    now = 0.0
    pace = StepPace(interval_s, clock=lambda: now)
    told: list[float] = []
    for step, gap in enumerate(gaps[:-1], start=1):
        now += gap
        if pace.tells(step, len(gaps)):
            told.append(now)
        else:
            assert now - told[-1] < interval_s
    now += gaps[-1]
    assert not pace.tells(len(gaps), len(gaps)), "the end of the stage tells of it"
    assert told[:1] == gaps[:-1][:1]
    assert all(later - earlier >= interval_s for earlier, later in pairwise(told))


def test_a_restart_makes_the_next_one_the_first() -> None:
    pace = StepPace(60.0)
    assert [pace.tells(step, 9) for step in (1, 2)] == [True, False]
    pace.restart()
    assert [pace.tells(step, 9) for step in (3, 4)] == [True, False]
