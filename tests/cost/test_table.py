import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.cost import LatencyCurve, TableCost
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from tests.cost.shapes import request

points = st.dictionaries(
    st.integers(1, 1000).map(float), st.floats(0.01, 100.0), min_size=1, max_size=6
)


@settings(deadline=None)
@given(points)
def test_a_curve_goes_through_its_points(measured: dict[float, float]) -> None:
    curve = LatencyCurve(measured.items())
    for size, seconds in measured.items():
        assert curve(size) == pytest.approx(seconds, rel=1e-6)


@settings(deadline=None)
@given(points, st.floats(0.0, 3000.0))
def test_a_curve_stays_between_neighbours_and_never_below_zero(
    measured: dict[float, float], size: float
) -> None:
    seconds = LatencyCurve(measured.items())(size)
    assert seconds >= 0
    if min(measured) <= size <= max(measured):
        low, high = min(measured.values()), max(measured.values())
        assert low * (1 - 1e-9) <= seconds <= high * (1 + 1e-9)
    if size > max(measured):
        assert seconds >= measured[max(measured)]


def test_noise_at_the_ends_is_not_carried_on() -> None:
    falling = LatencyCurve([(100, 3.67), (200, 3.66)])
    assert falling(50) == 3.67
    assert falling(1000) == 3.66


@pytest.mark.parametrize("measured", [[], [(1.0, 2.0), (1.0, 3.0)]])
def test_a_curve_needs_distinct_points(measured: list[tuple[float, float]]) -> None:
    with pytest.raises(ConfigError, match="points"):
        LatencyCurve(measured)


def test_a_table_by_kind_stage_and_dop() -> None:
    fast = {Stage.DIT: {1: LatencyCurve([(1000, 2.0)]), 2: LatencyCurve([(1000, 1.0)])}}
    slow = {
        Stage.DIT: {1: LatencyCurve([(1000, 6.0)])},
        Stage.DECODER: {1: LatencyCurve([(1000, 0.5)])},
    }
    cost = TableCost({"fast": fast, "slow": slow})
    small = request(10, 10, 10, 5)
    assert cost.allowed_dops(small) == (1, 2)
    assert cost.stage_seconds(small, Stage.DIT, 2) == 5.0
    assert cost.stage_seconds(small, Stage.DIT, 1, "slow") == 30.0
    assert cost.stage_seconds(small, Stage.DECODER, 8, "slow") == 0.5
    assert cost.stage_seconds(small, Stage.DECODER) == 0.0
    with pytest.raises(ConfigError, match="dop = 2: must be one of 1"):
        cost.step_seconds(small, 2, "slow")
    with pytest.raises(ConfigError, match=r"kind = 'x': must be a profiled GPU kind \(fast, slow"):
        cost.step_seconds(small, 1, "x")


def test_a_table_needs_dit_latencies() -> None:
    with pytest.raises(ConfigError, match="curves"):
        TableCost({})
    with pytest.raises(ConfigError, match="curves = 'fast'"):
        TableCost({"fast": {Stage.DECODER: {1: LatencyCurve([(1.0, 1.0)])}}})
