import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.cost import LatencyLaw, LawCost, Sample, read_stage_latencies
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from tests.cost.shapes import opensora, request

positive = st.floats(0.1, 100.0)
MEASURED = [(work, dop) for work in (10.0, 40.0, 90.0) for dop in (1, 2, 4, 8)]


@settings(deadline=None)
@given(rate=positive, bandwidth=positive, overhead=st.floats(0.0, 5.0))
def test_a_law_is_found_again_from_its_own_times(
    rate: float, bandwidth: float, overhead: float
) -> None:
    truth = LatencyLaw(rate=rate, bandwidth=bandwidth, overhead_s=overhead)
    samples = [Sample(work, dop, truth.seconds(work, dop)) for work, dop in MEASURED]
    assert LatencyLaw.fit(samples).worst_error(samples) < 1e-6


@settings(deadline=None)
@given(st.lists(st.tuples(positive, st.sampled_from([1, 2, 4, 8]), positive), min_size=1))
def test_whatever_was_measured_no_term_is_negative(rows: list[tuple[float, int, float]]) -> None:
    law = LatencyLaw.fit(Sample(*row) for row in rows)
    assert law.rate > 0
    assert law.bandwidth > 0
    assert law.overhead_s >= 0


def test_hand_worked_times() -> None:
    law = LatencyLaw(rate=10.0, bandwidth=100.0, overhead_s=1.0)
    assert law.seconds(80.0, 1) == 80 / 10 + 0 + 1
    assert law.seconds(80.0, 2) == 80 / 20 + 80 / 4 / 100 + 1
    assert law.seconds(80.0, 8) == 80 / 80 + 80 * 7 / 64 / 100 + 1


@pytest.mark.parametrize("resolution", ["360p", "480p"])
def test_the_law_follows_the_paper_where_the_gpu_is_busy(resolution: str) -> None:
    shape, cost = opensora(resolution), read_stage_latencies()
    samples = [Sample(shape.pixels, dop, cost.step_seconds(shape, dop)) for dop in (1, 2, 4, 8)]
    assert LatencyLaw.fit(samples).worst_error(samples) < 0.06


def test_measurements_must_be_there_and_take_time() -> None:
    with pytest.raises(ConfigError, match="samples"):
        LatencyLaw.fit([])
    with pytest.raises(ConfigError, match=r"seconds = 0\.0: must be above 0"):
        LatencyLaw.fit([Sample(1.0, 1, 0.0)])


def test_a_cost_of_laws() -> None:
    cost = LawCost(
        {
            Stage.DIT: LatencyLaw(rate=1000.0, bandwidth=1e9, overhead_s=0.0),
            Stage.DECODER: LatencyLaw(rate=4000.0, bandwidth=1e9, overhead_s=0.0),
        },
        dops=(1, 2),
    )
    small = request(10, 10, 10, 5)
    assert cost.stage_seconds(small, Stage.DIT, 1) == 5 * cost.step_seconds(small, 1) == 5.0
    assert cost.stage_seconds(small, Stage.DECODER, 2) == 0.25  # one GPU decodes
    assert cost.stage_seconds(small, Stage.ENCODER) == 0.0
    with pytest.raises(ConfigError, match="dop = 4: must be one of 1, 2"):
        cost.step_seconds(small, 4)
