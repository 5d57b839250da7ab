"""Estimates come from neighbours, say that they are, and go when something is measured."""

from __future__ import annotations

import pytest

from elastic_dit.control.progress import ObservedTimes
from elastic_dit.control.times import ExpectedTimes
from elastic_dit.cost import LatencyLaw, optimal_dop
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.rib import LatencyBook, RibCost, RibTimes, Source
from elastic_dit.rib.book import optimal_dops
from tests.rib.rows import key, latency, request

LAW = LatencyLaw(rate=1e5, bandwidth=1e6, overhead_s=0.05)


def by_law(width: int, dop: int = 1) -> float:
    return LAW.seconds(width * 64 * 9, dop)


def test_between_two_sizes_it_interpolates_and_says_so() -> None:
    book = LatencyBook([latency(1.0, 64), latency(3.0, 192)])
    found = book.find(key(128))
    assert found is not None
    assert (found.seconds, found.source, found.repeats) == (2.0, Source.ESTIMATED, 0)


def test_what_was_measured_replaces_the_estimate() -> None:
    rows = [latency(1.0, 64), latency(3.0, 192)]
    book = LatencyBook([*rows, latency(2.5, 128)])
    found = book.find(key(128))
    assert found is not None
    assert (found.seconds, found.source) == (2.5, Source.PROFILED)


@pytest.mark.parametrize(("width", "dop"), [(256, 1), (64, 4), (256, 8), (32, 2)])
def test_degrees_and_sizes_beyond_follow_the_law_of_the_neighbours(width: int, dop: int) -> None:
    rows = [latency(by_law(w, d), w, dop=d) for w, d in ((64, 1), (128, 1), (64, 2), (192, 2))]
    found = LatencyBook(rows).find(key(width, dop=dop))
    assert found is not None
    assert found.seconds == pytest.approx(by_law(width, dop), rel=1e-3)


def test_one_measurement_alone_grows_with_the_pixels() -> None:
    found = LatencyBook([latency(1.0, 64)]).find(key(128))
    assert found is not None
    assert found.seconds == pytest.approx(2.0)


def test_an_encoder_sees_no_pixels() -> None:
    rows = [latency(1.0, 64, stage=Stage.ENCODER), latency(1.2, 512, stage=Stage.ENCODER)]
    found = LatencyBook(rows).find(key(2048, stage=Stage.ENCODER))
    assert found is not None
    assert found.seconds == pytest.approx(1.1)


def test_without_guidance_the_transformer_runs_half_as_often() -> None:
    found = LatencyBook([latency(1.0)]).find(key(guided=False))
    assert found is not None
    assert (found.seconds, found.source) == (pytest.approx(0.5), Source.ESTIMATED)


def test_an_empty_kind_is_the_one_that_was_measured_most() -> None:
    book = LatencyBook([latency(1.0, kind="A10"), latency(2.0, 128, kind="A10"), latency(0.1)])
    assert book.find(key(kind="")) == book.find(key(kind="A10"))
    assert book.dops("m", "A10") == (1,)


@pytest.mark.parametrize("wanted", [key(model="n"), key(kind="H100"), key(stage=Stage.DECODER)])
def test_what_has_no_neighbours_is_unknown(wanted: object) -> None:
    assert LatencyBook([latency(1.0)]).find(wanted) is None  # type: ignore[arg-type]


def test_other_software_stands_in_but_is_nobodys_neighbour() -> None:
    old = latency(9.0, 128)
    stale = type(old)(key=old.key, seconds=old.seconds, repeats=3, source=Source.ESTIMATED)
    book = LatencyBook([latency(1.0, 64), latency(4.0, 256), stale])
    assert book.find(key(128)) == stale
    between = book.find(key(192))
    assert between is not None
    assert between.seconds == pytest.approx(3.0)


def test_optimal_degrees_are_those_of_the_cost_model() -> None:
    steps = {1: 2.0, 2: 1.2, 4: 0.6, 8: 0.55}
    rows = [latency(seconds, dop=dop) for dop, seconds in steps.items()]
    assert optimal_dops(rows) == {key(): 4}
    assert optimal_dop(RibCost(LatencyBook(rows)), request()) == 4


def test_a_whole_transformer_stage_is_its_steps_and_what_comes_once() -> None:
    book = LatencyBook([latency(0.5), latency(0.25, stage=Stage.ENCODER)])
    cost = RibCost(book, overhead_s=0.125)
    assert cost.stage_seconds(request(), Stage.DIT) == 0.125 + 4 * 0.5
    assert cost.stage_seconds(request(), Stage.ENCODER) == 0.125 + 0.25
    with pytest.raises(ConfigError, match="profiled: decoder on any GPU"):
        cost.stage_seconds(request(), Stage.DECODER)


def test_policies_expect_what_was_profiled_until_they_have_seen_better() -> None:
    observed = ObservedTimes()
    times = ExpectedTimes(observed, RibTimes(LatencyBook([latency(1.0)])))
    assert times.seconds(request(), Stage.DIT) == 1.0
    observed.observe(request(), Stage.DIT, 1, 2.0)
    assert times.seconds(request(), Stage.DIT) == 2.0
    other = request(model="n")
    observed.observe(other, Stage.DIT, 1, 0.8)
    assert times.seconds(other, Stage.DIT, 2) == 0.5  # not profiled: guessed from what was seen
