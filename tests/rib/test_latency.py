"""Samples merge as if they had been taken together, and old ones fade."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.request import Stage
from elastic_dit.rib import LatencyKey, Source
from elastic_dit.rib.latency import Moments
from tests.rib.rows import latency, request

samples = st.lists(st.floats(0.001, 100.0), min_size=2, max_size=20)


def moments(values: list[float]) -> Moments:
    made = Moments()
    for value in values:
        made.add(value)
    return made


@settings(deadline=None)  # a loaded machine
@given(samples, samples)
def test_two_lots_merge_to_what_one_would_say(some: list[float], more: list[float]) -> None:
    merged = moments(some)
    merged.merge(moments(more))
    assert merged.count == len(some) + len(more)
    assert merged.mean == pytest.approx(statistics.fmean(some + more))
    assert merged.spread == pytest.approx(statistics.stdev(some + more), abs=1e-6)


def test_merging_nothing_with_nothing_is_nothing() -> None:
    empty = Moments()
    empty.merge(Moments())
    assert (empty.count, empty.mean, empty.spread) == (0, 0.0, 0.0)


@settings(deadline=None)  # a loaded machine
@given(st.floats(0.01, 10.0), st.floats(0.01, 10.0), st.integers(1, 500), st.integers(1, 500))
def test_what_is_seen_wins_in_the_end(old_s: float, new_s: float, had: int, saw: int) -> None:
    seen = latency(new_s, repeats=saw)
    known = latency(old_s, repeats=had)
    for _ in range(100):
        known = known.refined(seen, most=20)
        assert known.repeats <= 20
        assert known.source is Source.OBSERVED
    assert abs(known.seconds - new_s) <= 0.02 * abs(old_s - new_s) + 1e-9


def test_guidance_is_part_of_what_a_step_is_but_not_of_a_decode() -> None:
    guided, plain = request(), request(guidance_scale=1.0)
    assert LatencyKey.of(guided, Stage.DIT) != LatencyKey.of(plain, Stage.DIT)
    assert LatencyKey.of(guided, Stage.DECODER) == LatencyKey.of(plain, Stage.DECODER)
