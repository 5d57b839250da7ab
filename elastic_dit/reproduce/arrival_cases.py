"""How the forecasts and the detector of shifts fare, on arrivals at random."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elastic_dit.predict.forecast import FORECASTS, backtest, binned
from elastic_dit.predict.shift import ShiftDetector
from elastic_dit.reproduce.predictor_schema import ShiftFigures
from elastic_dit.request import Stage

__all__ = ["AFTER", "SHIFT_CASES", "forecast_errors", "shift_figures"]

_BINS = 240
_AHEAD = 2
"""Bins: what a machine that is asked for takes to be there, where a bin is a minute."""
_MEAN_COUNT = 12.0

_RATES: Mapping[str, Callable[[int], float]] = {
    "steady": lambda _: 1.0,
    "doubled half-way": lambda index: 1.0 if index < _BINS // 2 else 2.0,
    "rising fourfold": lambda index: 1.0 + 3.0 * index / _BINS,
    "waves of 80 bins": lambda index: 1.0 + 0.8 * math.sin(2 * math.pi * index / 80),
    "bursts of 5 bins": lambda index: 4.0 if index % 40 < 5 else 1.0,
}
"""Rate of arrivals over bins, 1 being usual."""


def forecast_errors(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Root mean square error of every forecast, by kind of arrivals, over that of the last count.

    Parameters
    ----------
    seeds : sequence of int
        One series each.
    """
    return {name: _errors(rate, seeds) for name, rate in _RATES.items()}


def _errors(rate: Callable[[int], float], seeds: Sequence[int]) -> dict[str, float]:
    series = [_counts(rate, random.Random(seed)) for seed in seeds]
    errors = {
        name: statistics.fmean(backtest(make(), counts, _AHEAD) for counts in series)
        for name, make in FORECASTS.items()
    }
    return {name: error / errors["last"] for name, error in errors.items()}


def _counts(rate: Callable[[int], float], dice: random.Random) -> list[int]:
    """Poisson arrivals, counted."""
    times = []
    now = 0.0
    while now < _BINS:
        times.append(now)
        now += dice.expovariate(_MEAN_COUNT * rate(int(now)))
    return binned(times, bin_s=1.0, until_s=float(_BINS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftCase:
    """Requests before and after.

    Attributes
    ----------
    before, after : tuple of int
        Steps among which each request draws; none after means that nothing changes.
    rate_hz : float
        After; before it is `_RATE_HZ`.
    """

    before: tuple[int, ...]
    after: tuple[int, ...] = ()
    rate_hz: float = 0.1


_RATE_HZ = 0.1
_BEFORE = 1000
AFTER = 400
"""Requests of a trace after the shift."""
_STAGES = {Stage.ENCODER: 5.45, Stage.DIT: 18.4, Stage.DECODER: 9.7}
"""Seconds on an A10, of one step for the DiT (DisagFusion, Figure 14)."""

SHIFT_CASES = {
    "4 steps, no shift": ShiftCase(before=(4,)),
    "4 or 30 steps, no shift": ShiftCase(before=(4, 30)),
    "1 to 50 steps, no shift": ShiftCase(before=(1, 2, 4, 8, 20, 30, 50)),
    "4 steps to 1": ShiftCase(before=(4,), after=(1,)),
    "30 steps to 2": ShiftCase(before=(30,), after=(2,)),
    "4 or 30 steps to 30": ShiftCase(before=(4, 30), after=(30,)),
    "4 steps, rate doubled": ShiftCase(before=(4,), after=(4,), rate_hz=0.2),
    "4 steps, rate halved": ShiftCase(before=(4,), after=(4,), rate_hz=0.05),
}


def shift_figures(seeds: Sequence[int]) -> dict[str, ShiftFigures]:
    """What the detector does in each case.

    Parameters
    ----------
    seeds : sequence of int
        One trace each.
    """
    return {name: _figures(case, seeds) for name, case in SHIFT_CASES.items()}


def _figures(case: ShiftCase, seeds: Sequence[int]) -> ShiftFigures:
    runs = [_run(case, random.Random(seed)) for seed in seeds]
    alarms = statistics.fmean(alarmed for alarmed, _ in runs)
    if not case.after:
        return ShiftFigures(
            runs=len(runs), false_alarms=alarms, median_requests=None, most_requests=None
        )
    delays = [delay for _, delay in runs]
    return ShiftFigures(
        runs=len(runs),
        false_alarms=alarms,
        median_requests=statistics.median(delays),
        most_requests=max(delays),
    )


def _run(case: ShiftCase, dice: random.Random) -> tuple[bool, int]:
    """Whether there was a false alarm, and requests until the shift was noticed."""
    detector = ShiftDetector()
    alarmed = False
    now = 0.0
    for now, seconds in _requests(case.before, _RATE_HZ, _BEFORE, dice, 0.0):
        alarmed |= detector.observe(now, seconds) is not None
    if not case.after:
        return alarmed, 0
    after = _requests(case.after, case.rate_hz, AFTER, dice, now)
    for count, (at_s, seconds) in enumerate(after, start=1):
        if detector.observe(at_s, seconds) is not None:
            return alarmed, count
    return alarmed, AFTER


def _requests(
    steps: Sequence[int], rate_hz: float, count: int, dice: random.Random, now: float
) -> Iterator[tuple[float, dict[Stage, float]]]:
    for _ in range(count):
        now += dice.expovariate(rate_hz)
        yield now, {**_STAGES, Stage.DIT: dice.choice(steps) * _STAGES[Stage.DIT]}
