from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.predict.cusum import Cusum, CusumRule, Reference, TwoSided

FLOATS = st.floats(-100, 100)


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=50))
def test_the_sum_is_the_largest_rise_that_ends_now(increments):
    cusum = Cusum(1e9)
    for increment in increments:
        cusum.add(increment)
    rises = [sum(increments[start:]) for start in range(len(increments) + 1)]
    assert cusum._sum == pytest.approx(max(rises), abs=1e-6)


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=60), st.floats(0, 3), st.floats(1, 10), st.floats(3.5, 6))
def test_a_change_takes_as_many_observations_as_is_said(deviations, slack, threshold, clip):
    two_sided = TwoSided(CusumRule(slack=slack, threshold=threshold, clip=clip))
    least = threshold / (clip - slack)
    for count, deviation in enumerate(deviations, start=1):
        age = two_sided.add(deviation)
        assert age == 0 or least - 1e-9 <= age <= count


@settings(deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=60), st.integers(0, 5))
def test_a_reference_is_mean_and_deviation_of_all_but_the_latest(values, lag):
    reference = Reference(lag, window=1000)
    for value in values:
        reference.add(value)
    old = values[: max(0, len(values) - lag)]
    assert reference.count == len(old)
    if old:
        assert reference.mean == pytest.approx(statistics.fmean(old), abs=1e-6)
        assert reference.deviation == pytest.approx(statistics.pstdev(old), abs=1e-4)


def test_a_reference_forgets():
    reference = Reference(lag=0, window=10)
    for value in [0.0] * 50 + [1.0] * 100:
        reference.add(value)
    assert reference.mean == pytest.approx(1.0, abs=1e-3)
