"""One latency: what it is of, how long, how sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from elastic_dit.request import GenerationRequest, Stage

__all__ = ["Latency", "LatencyKey", "Moments", "Source", "is_guided"]


class Source(StrEnum):
    """Where a latency comes from."""

    PROFILED = "profiled"
    """Measured by ``elastic-dit profile``."""
    OBSERVED = "observed"
    """Seen while serving, alone or on top of a profile."""
    ESTIMATED = "estimated"
    """Neither: from neighbours, or measured with other software."""


class LatencyKey(NamedTuple):
    """What a latency is of.

    Examples
    --------
    >>> key = LatencyKey("shapes", Stage.DIT, 96, 96, 17, True, 2, "virtual")
    >>> key.pixels
    156672
    """

    model: str
    stage: Stage
    width: int
    height: int
    num_frames: int
    guided: bool
    """Whether classifier-free guidance is on; False for the decoder, which it does not touch."""
    dop: int
    kind: str
    """GPU kind."""

    @classmethod
    def of(cls, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = "") -> Self:
        """The key of one stage of a request."""
        return cls(
            request.model,
            stage,
            request.width,
            request.height,
            request.num_frames,
            is_guided(request) and stage is not Stage.DECODER,
            dop,
            kind,
        )

    @property
    def pixels(self) -> int:
        """Width x height x frames."""
        return self.width * self.height * self.num_frames


def is_guided(request: object) -> bool:
    """Whether classifier-free guidance is on; taken for off where a request does not say."""
    return getattr(request, "guidance_scale", 0.0) > 1.0


@dataclass(slots=True)
class Moments:
    """Count, mean and squared deviations of samples, added one by one (Welford).

    Examples
    --------
    >>> moments = Moments()
    >>> for sample in (1.0, 2.0, 3.0):
    ...     moments.add(sample)
    >>> moments.mean, moments.spread
    (2.0, 1.0)
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, sample: float) -> None:
        """Add one sample."""
        self.count += 1
        off = sample - self.mean
        self.mean += off / self.count
        self.squares += off * (sample - self.mean)

    def merge(self, other: Moments) -> None:
        """Add all samples of another."""
        count = self.count + other.count
        if count == 0:
            return
        off = other.mean - self.mean
        self.mean += off * other.count / count
        self.squares += other.squares + off * off * self.count * other.count / count
        self.count = count

    @property
    def spread(self) -> float:
        """Standard deviation of the samples, 0 for fewer than two."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long a stage takes.

    Attributes
    ----------
    key : LatencyKey
    seconds : float
        Mean of a whole stage, of one step for the DiT.
    spread_s : float
        Standard deviation, seconds.
    repeats : int
        Samples, 0 for an estimate.
    setup_s : float
        What the DiT stage takes once beside its steps; 0 for other stages.
    source : Source
    """

    key: LatencyKey
    seconds: float
    spread_s: float = 0.0
    repeats: int = 0
    setup_s: float = 0.0
    source: Source = Source.ESTIMATED

    @classmethod
    def measured(
        cls, key: LatencyKey, moments: Moments, source: Source, setup_s: float = 0.0
    ) -> Self:
        """What samples say."""
        return cls(
            key=key,
            seconds=moments.mean,
            spread_s=moments.spread,
            repeats=moments.count,
            setup_s=setup_s,
            source=source,
        )

    def refined(self, seen: Latency, most: int) -> Latency:
        """With what was seen since.

        Parameters
        ----------
        seen : Latency
        most : int
            Samples that count at most, so that what was seen last year fades.

        Examples
        --------
        >>> key = LatencyKey("m", Stage.DIT, 64, 64, 1, False, 1, "virtual")
        >>> old = Latency(key=key, seconds=1.0, repeats=30, source=Source.PROFILED)
        >>> new = Latency(key=key, seconds=2.0, repeats=10, source=Source.OBSERVED)
        >>> old.refined(new, most=100).seconds, old.refined(new, most=20).seconds
        (1.25, 1.5)
        """
        moments = self.moments(max(0, most - seen.repeats))
        moments.merge(seen.moments(most))
        return Latency.measured(self.key, moments, Source.OBSERVED, self.setup_s)

    def moments(self, most: int | None = None) -> Moments:
        """Its samples, or as few as `most` that are like them."""
        count = self.repeats if most is None else min(self.repeats, most)
        squares = self.spread_s**2 * max(0, count - 1)
        return Moments(count, self.seconds if count else 0.0, squares)
