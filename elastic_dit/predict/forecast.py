"""How many requests will come: forecasts of counted arrivals, and how well they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from elastic_dit.errors import ConfigError

__all__ = ["FORECASTS", "Forecast", "Holt", "LastCount", "Smoothed", "backtest", "binned"]


class Forecast(Protocol):
    """Sees the arrivals of one bin of time after the other."""

    def observe(self, count: float) -> None:
        """The next bin is over, and so many have come in it."""
        ...

    def expect(self, ahead: int) -> float:
        """Arrivals expected in the bin `ahead` bins from the last one; 0 before the first."""
        ...


class LastCount:
    """As many as last time: what any forecast has to beat."""

    def __init__(self) -> None:
        self._last = 0.0

    def __repr__(self) -> str:
        return f"LastCount({self._last:g})"

    def observe(self, count: float) -> None:
        """See `Forecast`."""
        self._last = count

    def expect(self, ahead: int) -> float:  # noqa: ARG002
        """See `Forecast`."""
        return self._last


class Smoothed:
    """Exponentially weighted mean.

    Parameters
    ----------
    weight : float
        Of the newest count, above 0 and at most 1. The first counts weigh as in a plain mean.
    """

    def __init__(self, weight: float) -> None:
        if not 0 < weight <= 1:
            raise ConfigError("weight", weight, "above 0 and at most 1")
        self._weight = weight
        self._seen = 0
        self._mean = 0.0

    def __repr__(self) -> str:
        return f"Smoothed({self._mean:g})"

    def observe(self, count: float) -> None:
        """See `Forecast`."""
        self._seen += 1
        self._mean += max(self._weight, 1 / self._seen) * (count - self._mean)

    def expect(self, ahead: int) -> float:  # noqa: ARG002
        """See `Forecast`."""
        return self._mean


class Holt:
    """Level and trend, both exponentially weighted; the trend fades with distance (Gardner 1985).

    Parameters
    ----------
    level, trend : float
        Weights of the newest count and of the newest rise, above 0 and at most 1.
    damping : float
        Part of the trend that lasts from bin to bin, 0 to 1.
    """

    def __init__(self, level: float, trend: float, damping: float) -> None:
        for name, value in (("level", level), ("trend", trend)):
            if not 0 < value <= 1:
                raise ConfigError(name, value, "above 0 and at most 1")
        if not 0 <= damping <= 1:
            raise ConfigError("damping", damping, "from 0 to 1")
        self._weights = level, trend
        self._damping = damping
        self._level: float | None = None
        self._trend = 0.0

    def __repr__(self) -> str:
        return f"Holt({self._level or 0:g} {self._trend:+g})"

    def observe(self, count: float) -> None:
        """See `Forecast`."""
        if self._level is None:
            self._level = count
            return
        of_level, of_trend = self._weights
        before, rise = self._level, self._damping * self._trend
        self._level = of_level * count + (1 - of_level) * (before + rise)
        self._trend = of_trend * (self._level - before) + (1 - of_trend) * rise

    def expect(self, ahead: int) -> float:
        """See `Forecast`."""
        rises = sum(self._damping**bins for bins in range(1, ahead + 1))
        return max(0.0, (self._level or 0.0) + rises * self._trend)


def binned(times_s: Iterable[float], bin_s: float, until_s: float) -> list[int]:
    """Arrivals counted in bins of time from 0; a last one that is not over is left out.

    Examples
    --------
    >>> binned([0.5, 2.5, 2.9, 7.0], bin_s=1.0, until_s=4.0)
    [1, 0, 2, 0]
    """
    counts = [0] * int(until_s / bin_s)
    for at_s in times_s:
        index = int(at_s / bin_s)
        if 0 <= index < len(counts):
            counts[index] += 1
    return counts


def backtest(forecast: Forecast, counts: Sequence[float], ahead: int, warm_up: int = 10) -> float:
    """Root mean square error of a forecast over a whole series, each made before it was known.

    Parameters
    ----------
    forecast : Forecast
        A fresh one.
    counts : sequence of float
        Arrivals per bin, more than `ahead` and `warm_up` together.
    ahead : int
        Bins between the last one seen and the one forecast.
    warm_up : int
        First bins that are only seen.

    Examples
    --------
    >>> backtest(LastCount(), [5.0, 5.0, 8.0, 8.0], ahead=1, warm_up=1)
    1.7320508075688772
    """
    squares = []
    for index, count in enumerate(counts):
        forecast.observe(count)
        if warm_up <= index + 1 < len(counts) - ahead + 1:
            squares.append((forecast.expect(ahead) - counts[index + ahead]) ** 2)
    return math.sqrt(sum(squares) / len(squares))


FORECASTS: Mapping[str, Callable[[], Forecast]] = {
    "last": LastCount,
    "smoothed": lambda: Smoothed(0.3),
    "slow": lambda: Smoothed(0.05),
    "holt": lambda: Holt(0.4, 0.1, 0.9),
}
"""By name; `docs/results/predictor.md` has what each is worth on which arrivals."""
