"""Workloads: from a mix, from a trace, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.predict.workload import MixPart, Workload, check_gpus
from elastic_dit.request import Stage


def test_means_and_variation_are_those_of_the_mix():
    parts = [MixPart(share=share, seconds={Stage.DIT: cost, Stage.ENCODER: 1.0})
             for share, cost in ((3, 30.0), (1, 2.0))]  # fmt: skip
    workload = Workload.of_mix(2.0, parts)
    assert workload.stage_seconds[Stage.DIT] == pytest.approx(23.0)
    assert workload.variation(Stage.DIT) == pytest.approx(math.sqrt(3 * 49 + 441) / 2 / 23)
    assert workload.variation(Stage.ENCODER) == 0.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_the_mean_lies_within_the_mix(parts):
    mix = [MixPart(share=share, seconds={Stage.DIT: cost}) for share, cost in parts]
    workload = Workload.of_mix(1.0, mix)
    costs = [cost for _, cost in parts]
    assert min(costs) * 0.999 <= workload.stage_seconds[Stage.DIT] <= max(costs) * 1.001
    assert workload.needed == (Stage.DIT,)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("rate_hz", {"rate_hz": -1.0}),
        ("rate_hz", {"rate_hz": math.nan}),
        ("stage_seconds.dit", {"stage_seconds": {Stage.DIT: -1.0}}),
        ("stage_seconds", {"stage_seconds": {}}),
        ("speeds.x", {"speeds": {"x": 0.0}}),
    ],
)
def test_what_cannot_be_is_refused_by_name(field, fields):
    sound = {"rate_hz": 1.0, "stage_seconds": {Stage.DIT: 1.0}}
    with pytest.raises(ConfigError) as caught:
        Workload(**{**sound, **fields})
    assert caught.value.field == field


def test_a_mix_without_shares_is_refused():
    with pytest.raises(ConfigError, match="shares above 0"):
        Workload.of_mix(1.0, [])


def test_a_negative_number_of_gpus_is_refused():
    workload = Workload(rate_hz=1.0, stage_seconds={Stage.DIT: 1.0})
    with pytest.raises(ConfigError, match=r"gpus\.a"):
        check_gpus(workload, {"a": -1, "b": 3})
    assert check_gpus(workload, {"a": 1, "b": 3}) == 4
