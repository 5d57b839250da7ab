from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.predict.balanced import bottleneck_hz
from elastic_dit.predict.split import Split, balanced_split, neighbours
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage
from tests.predict.test_balanced import SECONDS, every_split, workload_of


@settings(deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS), st.integers(3, 9))
def test_enough_moves_reach_every_split_once(seconds, gpus):
    workload = workload_of(*seconds)
    found = list(neighbours(balanced_split(workload, {"": gpus}), workload, gpus))
    assert len(found) == len(set(found)) == len(every_split(gpus))


@settings(deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS), st.integers(1, 5), st.integers(2, 5))
def test_moves_keep_all_gpus_and_one_for_each_stage(seconds, slow, fast):
    workload = workload_of(*seconds, speeds={"slow": 0.5})
    start = balanced_split(workload, {"slow": slow, "fast": fast})
    kinds = sorted(kind for held in start.kinds for kind in held)
    for split in neighbours(start, workload, 2):
        assert sorted(kind for held in split.kinds for kind in held) == kinds
        assert min(split.counts.values()) >= 1


@settings(deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS), st.integers(3, 12))
def test_rates_are_those_of_the_counts(seconds, gpus):
    workload = workload_of(*seconds)
    split = balanced_split(workload, {"A10": gpus})
    assert min(split.rates_hz(workload).values()) == bottleneck_hz(workload, split.counts)


def test_a_stage_that_is_not_needed_is_left_alone():
    workload = Workload(rate_hz=1.0, stage_seconds={Stage.DIT: 3.0, Stage.DECODER: 1.0})
    start = balanced_split(workload, {"": 5})
    assert {str(split) for split in neighbours(start, workload, 9)} == {
        "0:4:1", "0:3:2", "0:2:3", "0:1:4",
    }  # fmt: skip


def test_the_slowest_gpu_moves():
    workload = workload_of(1.0, 1.0, 1.0, speeds={"slow": 0.5})
    split = Split.of({"fast": 1}, {"fast": 1, "slow": 1}, {"fast": 1})
    moved = split.moved(Stage.DIT, Stage.DECODER, workload)
    assert moved == Split.of({"fast": 1}, {"fast": 1}, {"fast": 1, "slow": 1})
