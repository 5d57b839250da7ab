"""Workload shifts: the trigger of the predictor.

Three numbers are watched, request by request: encoder to DiT and decoder to DiT, which decide the
instance ratio, and the work of a request as a whole; besides the rate of arrivals, gap by gap. Each
has cumulative sums (`elastic_dit.predict.cusum`) against what it was a while ago: the numbers in
two speeds, `GROSS` for a change far outside the mix and `SUBTLE` for one within it.

A stationary mix of Poisson arrivals gives a false alarm in less than `FALSE_ALARMS` of all
thousands of requests; one costs no more than asking the predictor again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from elastic_dit.predict.cusum import Cusum, CusumRule, Reference, TwoSided
from elastic_dit.request import Stage

__all__ = [
    "FALSE_ALARMS",
    "GROSS",
    "RATE_THRESHOLD",
    "SETTLING",
    "SUBTLE",
    "Shift",
    "ShiftDetector",
]

GROSS = CusumRule(slack=2.0, threshold=8.0, clip=4.0)
"""Found within 4 requests: every one of them is like none before."""
SUBTLE = CusumRule(slack=0.5, threshold=12.0, clip=2.0)
"""A mean that moved by one standard deviation of the mix, within about 24 requests; by less than
half of one, never."""
RATE_THRESHOLD = 9.0
"""Of log likelihood ratios (Lorden 1971): a rate that doubled or halved, in about 50 requests.
Gaps vary so much that no rule is quicker at as few false alarms."""
SETTLING = 32
"""Requests after the start, or after a shift, in which nothing is called one."""
FALSE_ALARMS = 0.1
"""Part of all thousands of requests; most are the rate's."""

_LAG = 8
"""Latest requests that the mix's reference leaves out."""
_RATE_LAG = 64
"""Latest gaps that the rate's reference leaves out; as many again must be known."""
_WINDOW = 1000
"""Requests after which a reference forgets."""
_SAME = 0.15
"""Log ratio below which two requests are alike: no such difference moves a GPU."""
_LEAST_SHARE = 1e-3
"""Of a request's time that a stage counts for at least: a ratio needs two numbers above 0."""
_RATE_CHANGE = 2.0
"""Factor of the rate that is looked for, up or down."""
_LONGEST_GAP = 8.0
"""Mean gaps that a longer one counts as: one pause is no change."""
_REMEMBERED = 512
"""Latest arrivals in which the beginning of a shift is looked for."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the workload.

    Attributes
    ----------
    at_s : float
        When it was noticed.
    since_s : float
        When it began, by the best guess: requests from then on are of the new workload.
    reason : str
        What changed, for the decision log.
    """

    at_s: float
    since_s: float
    reason: str


class ShiftDetector:
    """Watches requests as they come. Deterministic; starts afresh after each shift.

    Examples
    --------
    >>> detector = ShiftDetector()
    >>> for second in range(40):
    ...     assert detector.observe(float(second), {Stage.ENCODER: 1.0, Stage.DIT: 30.0}) is None
    >>> few_steps = {Stage.ENCODER: 1.0, Stage.DIT: 2.0}
    >>> [detector.observe(40.0 + second, few_steps) is None for second in range(4)]
    [True, True, True, False]
    """

    def __init__(self) -> None:
        self._arrived: deque[float] = deque(maxlen=_REMEMBERED)
        self._start()

    def _start(self) -> None:
        self._mix = {name: _MixStream() for name in _NUMBERS}
        self._rate = _RateStream()

    def __repr__(self) -> str:
        return f"<ShiftDetector {', '.join(map(str, self._mix.values()))}, {self._rate}>"

    def observe(self, at_s: float, seconds: Mapping[Stage, float]) -> Shift | None:
        """One more request.

        Parameters
        ----------
        at_s : float
            When it arrived, seconds; not before the one before it.
        seconds : mapping of Stage to float
            What each stage of it takes, all steps of the DiT included.

        Returns
        -------
        Shift or None
            What has shifted, where something has.
        """
        gap_s = at_s - self._arrived[-1] if self._arrived else None
        self._arrived.append(at_s)
        ages = {name: self._mix[name].add(number) for name, number in _numbers(seconds).items()}
        if gap_s is not None:
            ages["rate of arrivals"] = self._rate.add(gap_s)
        shifted = [name for name, age in ages.items() if age]
        if not shifted:
            return None
        age = min(max(ages.values()), len(self._arrived))
        shift = Shift(at_s, self._arrived[-age], f"{' and '.join(shifted)} changed")
        self._start()
        return shift


_NUMBERS = ("encoder to DiT", "decoder to DiT", "work per request")


def _numbers(seconds: Mapping[Stage, float]) -> dict[str, float]:
    whole = sum(seconds.values())
    logs = {stage: math.log(max(seconds.get(stage, 0.0), _LEAST_SHARE * whole)) for stage in Stage}
    dit = logs[Stage.DIT]
    return dict(
        zip(
            _NUMBERS,
            (logs[Stage.ENCODER] - dit, logs[Stage.DECODER] - dit, math.log(whole)),
            strict=True,
        )
    )


class _MixStream:
    """One number per request, which is much the same for each kind of them."""

    def __init__(self) -> None:
        self._reference = Reference(_LAG, _WINDOW)
        self._sums = (TwoSided(GROSS), TwoSided(SUBTLE))

    def __repr__(self) -> str:
        return f"{self._reference!r}"

    def add(self, number: float) -> int:
        """Add one; how many requests a change is old, 0 for none."""
        reference = self._reference
        age = 0
        if reference.count >= SETTLING - _LAG:
            deviation = (number - reference.mean) / max(reference.deviation, _SAME)
            age = max(two_sided.add(deviation) for two_sided in self._sums)
        reference.add(number)
        return age


class _RateStream:
    """Gaps between arrivals, taken for exponential."""

    def __init__(self) -> None:
        self._reference = Reference(_RATE_LAG, _WINDOW)
        self._more, self._fewer = Cusum(RATE_THRESHOLD), Cusum(RATE_THRESHOLD)

    def __repr__(self) -> str:
        return f"{self._reference!r}"

    def add(self, gap_s: float) -> int:
        """Add one; how many requests a change is old, 0 for none."""
        mean_s = self._reference.mean
        age = 0
        if self._reference.count >= _RATE_LAG and mean_s > 0:
            gaps = min(gap_s / mean_s, _LONGEST_GAP)
            evidence = math.log(_RATE_CHANGE)
            more = self._more.add(evidence - (_RATE_CHANGE - 1) * gaps)
            fewer = self._fewer.add((1 - 1 / _RATE_CHANGE) * gaps - evidence)
            age = max(self._more.run if more else 0, self._fewer.run if fewer else 0)
        self._reference.add(gap_s)
        return age
