"""Steps that are told, and steps that are not."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.worker.step_pace import StepPace


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=30), st.floats(0.0, 4.0))
def test_first_last_and_one_an_interval(gaps: list[float], interval_s: float) -> None:
    now = 0.0
    pace = StepPace(interval_s, clock=lambda: now)
    told: list[float] = []
    silent_since = 0.0
    for step, gap in enumerate(gaps, start=1):
        now += gap
        if pace.tells(step, len(gaps)):
            told.append(now)
            silent_since = now
        else:
            assert now - silent_since < interval_s
    assert told[0] == gaps[0]
    assert told[-1] == now
    assert all(later - earlier >= interval_s for earlier, later in pairwise(told[:-1]))


def test_a_restart_makes_the_next_one_the_first() -> None:
    pace = StepPace(60.0)
    assert [pace.tells(step, 9) for step in (1, 2)] == [True, False]
    pace.restart()
    assert [pace.tells(step, 9) for step in (3, 4)] == [True, False]
