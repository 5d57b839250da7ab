from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError, InvalidRequest
from elastic_dit.simulate.workload import LoadPhase, RequestClass, burst, phased, poisson

SIZE = {
    "model": "m",
    "width": 64,
    "height": 64,
    "num_frames": 9,
    "fps": 8,
    "num_inference_steps": 12,
    "guidance_scale": 4.0,
}


def mix(*shares: float) -> list[RequestClass]:
    return [
        RequestClass(label=f"c{i}", share=share, options={**SIZE, "priority": i, "deadline_s": 9.0})
        for i, share in enumerate(shares)
    ]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    st.integers(0, 60),
    st.integers(0, 5),
)
def test_the_mix_is_as_exact_as_the_count_allows(shares: list[int], count: int, seed: int) -> None:
    arrivals = burst(mix(*shares), count=count, seed=seed, at_s=2.5)
    assert len(arrivals) == count
    assert all(arrival.at_s == 2.5 for arrival in arrivals)
    found = Counter(arrival.label for arrival in arrivals)
    for index, share in enumerate(shares):
        assert abs(found[f"c{index}"] - count * share / sum(shares)) < 1


def test_the_same_seed_gives_the_same_workload() -> None:
    phases = [LoadPhase(duration_s=50.0, rate_per_s=0.5, classes=mix(1, 2))]
    for make in (
        lambda seed: poisson(mix(1, 2), rate_per_s=0.5, count=30, seed=seed),
        lambda seed: burst(mix(1, 2), count=30, seed=seed),
        lambda seed: phased(phases, seed=seed),
    ):
        assert make(3) == make(3)
        assert make(3) != make(4)


def test_poisson_arrivals_come_at_the_rate_and_in_order() -> None:
    arrivals = poisson(mix(1), rate_per_s=2.0, count=4000, seed=1)
    times = [arrival.at_s for arrival in arrivals]
    assert times == sorted(times)
    assert times[-1] / 4000 == pytest.approx(0.5, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    # Of exponential gaps, 1/e are longer than their mean.
    assert sum(gap > 0.5 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_a_class_gives_its_priority_and_deadline() -> None:
    for arrival in burst(mix(1, 1), count=4, seed=0):
        assert arrival.request.priority == int(arrival.label[1:])
        assert arrival.request.deadline_s == 9.0


def test_request_ids_are_distinct() -> None:
    arrivals = poisson(mix(1, 1), rate_per_s=1.0, count=50, seed=0)
    assert len({arrival.request.request_id for arrival in arrivals}) == 50


def test_phases_change_rate_and_mix() -> None:
    arrivals = phased(
        [
            LoadPhase(duration_s=100.0, rate_per_s=2.0, classes=mix(1, 0)),
            LoadPhase(duration_s=50.0, rate_per_s=0.0, classes=mix(1, 1)),
            LoadPhase(duration_s=100.0, rate_per_s=4.0, classes=mix(0, 1)),
        ],
        seed=2,
    )
    first = [a for a in arrivals if a.at_s < 100]
    pause = [a for a in arrivals if 100 <= a.at_s < 150]
    second = [a for a in arrivals if a.at_s >= 150]
    assert len(first) == pytest.approx(200, rel=0.25)
    assert len(second) == pytest.approx(400, rel=0.25)
    assert pause == []
    assert {a.label for a in first} == {"c0"}
    assert {a.label for a in second} == {"c1"}
    assert all(a.at_s < 250 for a in arrivals)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate_per_s"):
        poisson(mix(1), rate_per_s=rate, count=1, seed=0)


@pytest.mark.parametrize("shares", [(), (0, 0), (1, -1), (float("nan"),)])
def test_shares_make_a_mix(shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="share"):
        burst(mix(*shares), count=1, seed=0)


def test_other_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="count = -1"):
        burst(mix(1), count=-1, seed=0)
    with pytest.raises(ConfigError, match=r"phases\.0\.duration_s"):
        phased([LoadPhase(duration_s=0.0, rate_per_s=1.0, classes=mix(1))], seed=0)
    with pytest.raises(ConfigError, match=r"phases\.0\.rate_per_s"):
        phased([LoadPhase(duration_s=1.0, rate_per_s=-1.0, classes=mix(1))], seed=0)
    with pytest.raises(InvalidRequest, match="width"):
        burst([RequestClass(label="x", share=1, options={"model": "m"})], count=1, seed=0)
