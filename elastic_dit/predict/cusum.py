"""Cumulative sums: whether a stream of numbers has changed its mean, and since when."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

__all__ = ["Cusum", "CusumRule", "Reference", "TwoSided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CusumRule:
    """When a sum of deviations is a change (Page 1954).

    Attributes
    ----------
    slack : float
        Subtracted from every deviation, standard deviations: changes of twice as much are found
        soonest, those below it never.
    threshold : float
        Sum that is a change.
    clip : float
        Larger deviations count as this: so a change takes at least
        ``threshold / (clip - slack)`` observations, and a few odd ones are none.
    """

    slack: float
    threshold: float
    clip: float


class Cusum:
    """A sum that never falls below zero.

    Parameters
    ----------
    threshold : float
        Sum that is a change.

    Attributes
    ----------
    run : int
        Observations since the sum was last zero: those of the change, once there is one.

    Examples
    --------
    >>> cusum = Cusum(4.0)
    >>> [cusum.add(increment) for increment in (0.5, -1.0, 2.0, -0.5, 2.0, 2.0)]
    [False, False, False, False, False, True]
    >>> cusum.run
    4
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._sum = 0.0
        self.run = 0

    def __repr__(self) -> str:
        return f"<Cusum {self._sum:.1f} of {self._threshold:g}>"

    def add(self, increment: float) -> bool:
        """Add one; whether that is a change."""
        self._sum = max(0.0, self._sum + increment)
        self.run = self.run + 1 if self._sum else 0
        return self._sum >= self._threshold


class TwoSided:
    """Sums of deviations up and down.

    Parameters
    ----------
    rule : CusumRule
    """

    def __init__(self, rule: CusumRule) -> None:
        self._rule = rule
        self._up, self._down = Cusum(rule.threshold), Cusum(rule.threshold)

    def __repr__(self) -> str:
        return f"<TwoSided up {self._up!r}, down {self._down!r}>"

    def add(self, deviation: float) -> int:
        """Add one, in standard deviations; how many observations a change is old, 0 for none."""
        rule = self._rule
        bounded = min(max(deviation, -rule.clip), rule.clip)
        up, down = self._up.add(bounded - rule.slack), self._down.add(-bounded - rule.slack)
        return max(self._up.run if up else 0, self._down.run if down else 0)


class Reference:
    """Mean and standard deviation of a stream as it was a while ago.

    Parameters
    ----------
    lag : int
        The latest so many observations do not count yet, so that a change does not hide itself.
    window : int
        Observations after which older ones fade, so that slow drift is followed.

    Attributes
    ----------
    count : int
        Observations that count, at most `window`.
    mean : float
    """

    def __init__(self, lag: int, window: int) -> None:
        self._recent: deque[float] = deque()
        self._lag = lag
        self._window = window
        self._variance = 0.0
        self.count = 0
        self.mean = 0.0

    def __repr__(self) -> str:
        return f"<Reference {self.mean:.3g} ± {self.deviation:.3g} of {self.count}>"

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return math.sqrt(self._variance)

    def add(self, value: float) -> None:
        """Add one; the one before `lag` others counts from now on."""
        self._recent.append(value)
        if len(self._recent) <= self._lag:
            return
        old = self._recent.popleft()
        self.count = min(self.count + 1, self._window)
        away = old - self.mean
        self.mean += away / self.count
        self._variance += (away * (old - self.mean) - self._variance) / self.count
