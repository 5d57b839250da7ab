"""The closed form against an exhaustive search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.predict.balanced import BalancedRatio, bottleneck_hz
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage

SECONDS = st.floats(0.01, 100.0)


def workload_of(*seconds: float, rate_hz: float = 0.1, **fields: object) -> Workload:
    stage_seconds = dict(zip(Stage, seconds, strict=True))
    return Workload(rate_hz=rate_hz, stage_seconds=stage_seconds, **fields)


def every_split(gpus: int) -> list[dict[Stage, int]]:
    return [
        dict(zip(Stage, (e, t, gpus - e - t), strict=True))
        for e in range(1, gpus - 1)
        for t in range(1, gpus - e)
    ]


@settings(deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS), st.integers(3, 12))
def test_no_split_has_a_faster_bottleneck_nor_faster_runners_up(seconds, gpus):
    workload = workload_of(*seconds)

    def rates(counts):
        return sorted(counts[stage] / workload.stage_seconds[stage] for stage in Stage)

    ours = BalancedRatio().predict(workload, {"": gpus})
    assert sum(ours.values()) == gpus
    assert rates(ours) == pytest.approx(max(rates(split) for split in every_split(gpus)))


@settings(deadline=None)
@given(
    st.tuples(SECONDS, SECONDS, SECONDS),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 6), min_size=1),
    st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 10.0)),
)
def test_every_stage_gets_one_and_all_are_given_whatever_the_kinds(seconds, gpus, speeds):
    workload = workload_of(*seconds, speeds=speeds)
    total = sum(gpus.values())
    if total < 3:
        with pytest.raises(ConfigError, match="3 or more, one for each stage"):
            BalancedRatio().predict(workload, gpus)
        return
    counts = BalancedRatio().predict(workload, gpus)
    assert sum(counts.values()) == total
    assert min(counts.values()) >= 1


def test_a_stage_that_takes_no_time_gets_no_gpu():
    counts = BalancedRatio().predict(workload_of(0.0, 3.0, 1.0), {"": 4})
    assert list(counts.values()) == [0, 3, 1]


def test_a_fast_kind_counts_for_more():
    """Two GPUs of speed 4 do all denoising; the slow ones share the rest."""
    workload = workload_of(1.0, 8.0, 1.0, speeds={"fast": 4.0})
    counts = BalancedRatio().predict(workload, {"fast": 2, "slow": 2})
    assert list(counts.values()) == [1, 2, 1]


def test_the_papers_ratios():
    workload = workload_of(5.45, 73.5, 9.7)
    assert list(BalancedRatio().predict(workload, {"A10": 8}).values()) == [1, 6, 1]
    one_step = workload_of(5.45, 18.4, 9.7)
    paper = dict(zip(Stage, (1, 5, 2), strict=True))
    ours = BalancedRatio().predict(one_step, {"A10": 8})
    assert bottleneck_hz(one_step, ours) > bottleneck_hz(one_step, paper)
