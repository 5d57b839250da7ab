from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.predict.forecast import (
    FORECASTS,
    Holt,
    LastCount,
    Smoothed,
    backtest,
    binned,
)

COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@settings(deadline=None)
@given(st.sampled_from(sorted(FORECASTS)), COUNTS, st.integers(1, 5))
def test_no_forecast_is_negative_nor_runs_away(name, counts, ahead):
    forecast = FORECASTS[name]()
    assert forecast.expect(ahead) == 0
    for count in counts:
        forecast.observe(count)
    assert 0 <= forecast.expect(ahead) <= 10 * max(counts)


@settings(deadline=None)
@given(st.sampled_from(sorted(FORECASTS)), st.integers(0, 50))
def test_a_steady_stream_is_forecast_exactly(name, count):
    assert backtest(FORECASTS[name](), [count] * 30, ahead=2) == pytest.approx(0.0)


def test_holt_follows_a_ramp_and_smoothing_lags_behind():
    ramp = [2.0 * index for index in range(80)]
    undamped = Holt(0.4, 0.1, 1.0)
    assert backtest(undamped, ramp, ahead=3, warm_up=60) < 1.0
    assert backtest(Smoothed(0.3), ramp, ahead=3, warm_up=60) > 6.0


def test_smoothing_beats_the_last_count_on_noise():
    dice = random.Random(0)
    noise = [dice.gauss(20.0, 4.0) for _ in range(400)]
    assert backtest(Smoothed(0.05), noise, ahead=1) < backtest(LastCount(), noise, ahead=1)


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), max_size=50), st.floats(0.5, 20))
def test_bins_hold_every_arrival_before_their_end(times, bin_s):
    counts = binned(times, bin_s, until_s=60.0)
    assert len(counts) == int(60.0 / bin_s)
    assert sum(counts) == sum(int(at_s / bin_s) < len(counts) for at_s in times)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Smoothed(0.0),
        lambda: Smoothed(1.5),
        lambda: Holt(0.0, 0.1, 0.9),
        lambda: Holt(0.4, 2.0, 0.9),
        lambda: Holt(0.4, 0.1, 1.1),
    ],
)
def test_weights_that_cannot_be_are_refused(make):
    with pytest.raises(ConfigError):
        make()
