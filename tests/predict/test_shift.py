"""Shifts: rarely called where there is none, soon where there is one, dated about right."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator

import pytest

from elastic_dit.predict.shift import FALSE_ALARMS, SETTLING, Shift, ShiftDetector
from elastic_dit.request import Stage

Costs = dict[Stage, float]
RUNS = 40


def request(steps: int) -> Costs:
    return {Stage.ENCODER: 5.45, Stage.DIT: 18.4 * steps, Stage.DECODER: 9.7}


def poisson(
    dice: random.Random, count: int, rate_hz: float, draw: Callable[[], Costs], start_s: float = 0.0
) -> Iterator[tuple[float, Costs]]:
    for _ in range(count):
        start_s += dice.expovariate(rate_hz)
        yield start_s, draw()


MIXES = {
    "all alike": (4,),
    "halves": (4, 30),
    "rarely long": (2,) * 11 + (30,),
    "anything": (1, 2, 4, 8, 20, 30, 50),
}


@pytest.mark.parametrize("steps", MIXES.values(), ids=MIXES)
def test_stationary_requests_rarely_alarm(steps):
    alarms = 0
    for seed in range(RUNS):
        dice, detector = random.Random(seed), ShiftDetector()
        trace = poisson(dice, 1000, 0.1, lambda dice=dice: request(dice.choice(steps)))
        alarms += any(detector.observe(at_s, costs) is not None for at_s, costs in trace)
    assert alarms <= FALSE_ALARMS * RUNS


def first_shift(
    seed: int, before: tuple[int, float], after: tuple[int, float]
) -> tuple[int, Shift]:
    """Requests after the change until it is noticed, and what is; time 0 is the change."""
    dice, detector = random.Random(seed), ShiftDetector()
    trace = list(poisson(dice, 200, before[1], lambda: request(before[0])))
    changed_at = trace[-1][0]
    for at_s, costs in trace:
        assert detector.observe(at_s - changed_at, costs) is None
    for count, (at_s, costs) in enumerate(
        poisson(dice, 400, after[1], lambda: request(after[0])), 1
    ):
        shift = detector.observe(at_s, costs)
        if shift is not None:
            return count, shift
    pytest.fail("nothing was noticed")


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (30, 2), (2, 30), (50, 30)])
def test_other_steps_are_noticed_within_four_requests(before, after):
    for seed in range(5):
        count, shift = first_shift(seed, (before, 0.1), (after, 0.1))
        assert count <= 8 if abs(before - after) == 20 else count == 4
        assert shift.reason.startswith("encoder to DiT and decoder to DiT and work per request")
        assert 0 < shift.since_s <= shift.at_s, "dated to the first request of the new kind"


@pytest.mark.parametrize("after_hz", [0.2, 0.05, 0.4])
def test_another_rate_is_noticed_within_sixty_requests_as_a_rule(after_hz):
    counts = []
    for seed in range(10, 20):
        count, shift = first_shift(seed, (4, 0.1), (4, after_hz))
        counts.append(count)
        assert shift.reason == "rate of arrivals changed"
    assert statistics.median(counts) <= 60
    assert max(counts) <= 150


def test_a_subtler_mix_is_noticed_too():
    """Halves become three quarters and one: half a standard deviation and more."""
    dice, detector = random.Random(5), ShiftDetector()
    for at_s, costs in poisson(dice, 300, 0.1, lambda: request(dice.choice((4, 30)))):
        assert detector.observe(at_s, costs) is None
    for count in range(100):
        if detector.observe(at_s + 10.0 * count, request(30)) is not None:
            break
    assert count < 40


def test_nothing_is_called_a_shift_while_settling():
    detector = ShiftDetector()
    for index in range(SETTLING):
        assert detector.observe(float(index), request(1 if index % 2 else 50)) is None


def test_a_few_odd_requests_are_no_shift():
    detector = ShiftDetector()
    for index in range(300):
        odd = index > SETTLING and index % 10 < 2
        assert detector.observe(10.0 * index, request(50 if odd else 4)) is None


def test_stages_that_take_nothing_are_fine():
    detector = ShiftDetector()
    for index in range(100):
        assert detector.observe(float(index), {Stage.DIT: 3.0}) is None
    assert "Reference" in repr(detector)
