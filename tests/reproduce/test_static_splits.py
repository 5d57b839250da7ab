"""Splits measured by simulation: where theory knows the answer, and by search."""

from __future__ import annotations

import pytest

from elastic_dit.predict.examples import Situation, best_split
from elastic_dit.predict.features import bound_hz
from elastic_dit.predict.split import Split, balanced_split
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.reproduce.situations import draw_situations
from elastic_dit.reproduce.static_splits import SplitSearch, measure_split, search_splits
from elastic_dit.request import Stage

QUICK = SplitSearch(requests=80, seeds=(0,))
A10 = {Stage.ENCODER: 5.45, Stage.DIT: 18.4, Stage.DECODER: 9.7}


def split_of(encoder: int, dit: int, decoder: int) -> Split:
    return Split.of({"A10": encoder}, {"A10": dit}, {"A10": decoder})


@pytest.mark.parametrize(
    ("dit_s", "split", "qpm"),
    [
        (73.5, (1, 6, 1), 4.9),
        (73.5, (1, 5, 2), 4.0),
        (18.4, (1, 6, 1), 6.2),
        (18.4, (1, 5, 2), 11.0),
    ],
)
def test_disagfusions_throughputs(dit_s, split, qpm):
    workload = Workload(rate_hz=0.0, stage_seconds={**A10, Stage.DIT: dit_s})
    outcome = measure_split(Situation(workload, {"A10": 8}), split_of(*split), QUICK)
    assert 60 * outcome.throughput_hz == pytest.approx(qpm, rel=0.03)


def test_a_cluster_that_keeps_up_serves_what_comes():
    workload = Workload(rate_hz=0.02, stage_seconds=A10)
    outcome = measure_split(Situation(workload, {"A10": 8}), split_of(2, 4, 2), QUICK)
    assert outcome.throughput_hz == pytest.approx(0.02)
    assert sum(A10.values()) <= outcome.latency_s < 1.05 * sum(A10.values())


def test_slow_gpus_are_slow():
    workload = Workload(rate_hz=0.0, stage_seconds=A10, speeds={"slow": 0.5})
    fast, mixed = Split.of({"": 1}, {"": 2}, {"": 1}), Split.of({"": 1}, {"slow": 2}, {"": 1})
    served = [
        measure_split(Situation(workload, {}), split, QUICK).throughput_hz
        for split in (fast, mixed)
    ]
    assert served == pytest.approx([1 / 9.7, 1 / 18.4], rel=0.03)


def test_the_search_finds_what_trying_all_finds():
    parts = [
        MixPart(share=3, seconds=dict.fromkeys(Stage, 5.0)),
        MixPart(share=1, seconds={Stage.ENCODER: 20.0, Stage.DIT: 60.0, Stage.DECODER: 30.0}),
    ]
    situation = Situation(Workload.of_mix(0.15, parts), {"": 7})
    some = search_splits(situation, QUICK)
    every = search_splits(situation, SplitSearch(requests=80, seeds=(0,), worth=0.0))
    assert len(some) < len(every) == 15
    assert best_split(some) == best_split(every)
    assert balanced_split(situation.workload, situation.gpus) in some


@pytest.mark.parametrize("situation", draw_situations(6, seed=9))
def test_no_split_beats_its_bound(situation):
    closed = balanced_split(situation.workload, situation.gpus)
    outcome = measure_split(situation, closed, QUICK)
    bound = bound_hz(situation.workload, closed)
    assert 0.8 * bound < outcome.throughput_hz <= bound


def test_draws_are_repeatable_and_differ():
    assert draw_situations(5, seed=3) == draw_situations(5, seed=3)
    assert draw_situations(5, seed=3) != draw_situations(5, seed=4)
    kinds = {len(situation.gpus) for situation in draw_situations(40, seed=3)}
    assert kinds == {1, 2}
