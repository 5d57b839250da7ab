"""Workloads: which requests arrive when. The same seed gives the same workload."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_dit.errors import ConfigError
from elastic_dit.request import GenerationRequest

__all__ = ["Arrival", "LoadPhase", "RequestClass", "burst", "phased", "poisson"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request and when it comes; feed `request` to a controller as ``RequestAccepted``.

    Attributes
    ----------
    at_s : float
        Seconds after the start of the workload.
    request : GenerationRequest
        Its ``priority`` and ``deadline_s`` are those of its class.
    label : str
        Name of its class, for results by class.
    """

    at_s: float
    request: GenerationRequest
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """One kind of request in a mix.

    Attributes
    ----------
    label : str
        Name, such as ``360p`` or ``S``.
    share : float
        Part of the mix, in any unit: only the proportion to the other classes counts.
    options : mapping
        Fields of `GenerationRequest`, `request_id` and `seed` excepted.
    """

    label: str
    share: float
    options: Mapping[str, Any] = field(default_factory=dict)

    def request(self, request_id: str, seed: int) -> GenerationRequest:
        """One request of this class.

        Raises
        ------
        InvalidRequest
            Where a field of `options` is missing or wrong.
        """
        return GenerationRequest.parse(
            **{"prompt": self.label, **self.options, "request_id": request_id, "seed": seed}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """A stretch of time with a steady rate and mix.

    Attributes
    ----------
    duration_s : float
        Length, seconds.
    rate_per_s : float
        Mean arrivals per second; 0 for a pause.
    classes : sequence of RequestClass
    """

    duration_s: float
    rate_per_s: float
    classes: Sequence[RequestClass]


def poisson(
    classes: Sequence[RequestClass], *, rate_per_s: float, count: int, seed: int
) -> tuple[Arrival, ...]:
    """Arrivals at random and at a steady mean rate.

    The mix is kept as exactly as `count` allows, its order is random.

    Parameters
    ----------
    classes : sequence of RequestClass
    rate_per_s : float
        Mean arrivals per second.
    count : int
        Requests in all.
    seed : int

    Raises
    ------
    ConfigError
        Where the rate is not above 0, or the shares make no mix.
    """
    if not (rate_per_s > 0 and math.isfinite(rate_per_s)):
        raise ConfigError("rate_per_s", rate_per_s, "a finite number above 0")
    rng = random.Random(seed)
    kinds = _exact_mix(classes, count, rng)
    at_s = 0.0
    arrivals = []
    for index, kind in enumerate(kinds):
        at_s += rng.expovariate(rate_per_s)
        arrivals.append(_arrival(index, at_s, kind, rng))
    return tuple(arrivals)


def burst(
    classes: Sequence[RequestClass], *, count: int, seed: int, at_s: float = 0.0
) -> tuple[Arrival, ...]:
    """All requests at once, in a random order.

    Parameters
    ----------
    classes : sequence of RequestClass
    count : int
        Requests in all; the mix is kept as exactly as it allows.
    seed : int
    at_s : float
        When, seconds.

    Raises
    ------
    ConfigError
        Where the shares make no mix.

    Examples
    --------
    >>> size = dict(model="m", width=64, height=64, num_frames=9, fps=8,
    ...             num_inference_steps=12, guidance_scale=4.0)
    >>> mix = [RequestClass(label="short", share=2, options=size),
    ...        RequestClass(label="long", share=1, options={**size, "num_frames": 17})]
    >>> sorted(arrival.label for arrival in burst(mix, count=6, seed=0))
    ['long', 'long', 'short', 'short', 'short', 'short']
    """
    rng = random.Random(seed)
    kinds = _exact_mix(classes, count, rng)
    return tuple(_arrival(index, at_s, kind, rng) for index, kind in enumerate(kinds))


def phased(phases: Sequence[LoadPhase], *, seed: int) -> tuple[Arrival, ...]:
    """Poisson arrivals whose rate and mix change from phase to phase.

    Parameters
    ----------
    phases : sequence of LoadPhase
        One after the other. Within a phase every request draws its class by the shares.
    seed : int

    Raises
    ------
    ConfigError
        Where a phase has no length, a negative rate, or shares that make no mix.
    """
    rng = random.Random(seed)
    arrivals: list[Arrival] = []
    start_s = 0.0
    for number, phase in enumerate(phases):
        if not phase.duration_s > 0:
            raise ConfigError(f"phases.{number}.duration_s", phase.duration_s, "above 0")
        if not phase.rate_per_s >= 0:
            raise ConfigError(f"phases.{number}.rate_per_s", phase.rate_per_s, "0 or more")
        shares = _checked_shares(phase.classes)
        for at_s in _times(start_s, phase, rng):
            kind = rng.choices(phase.classes, shares)[0]
            arrivals.append(_arrival(len(arrivals), at_s, kind, rng))
        start_s += phase.duration_s
    return tuple(arrivals)


def _times(start_s: float, phase: LoadPhase, rng: random.Random) -> Iterator[float]:
    if phase.rate_per_s == 0:
        return
    at_s = start_s + rng.expovariate(phase.rate_per_s)
    while at_s < start_s + phase.duration_s:
        yield at_s
        at_s += rng.expovariate(phase.rate_per_s)


def _arrival(index: int, at_s: float, kind: RequestClass, rng: random.Random) -> Arrival:
    request = kind.request(f"{kind.label}-{index:05d}", rng.randrange(2**31))
    return Arrival(at_s=at_s, request=request, label=kind.label)


def _checked_shares(classes: Sequence[RequestClass]) -> list[float]:
    shares = [kind.share for kind in classes]
    if any(not share >= 0 for share in shares) or not 0 < sum(shares) < math.inf:
        raise ConfigError("share", shares, "0 or more each, and one above 0")
    return shares


def _exact_mix(
    classes: Sequence[RequestClass], count: int, rng: random.Random
) -> list[RequestClass]:
    """`count` classes by largest remainder, shuffled."""
    shares = _checked_shares(classes)
    if count < 0:
        raise ConfigError("count", count, "0 or more")
    quotas = [count * share / sum(shares) for share in shares]
    numbers = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: numbers[i] - quotas[i])
    for index in by_remainder[: count - sum(numbers)]:
        numbers[index] += 1
    kinds = [kind for kind, number in zip(classes, numbers, strict=True) for _ in range(number)]
    rng.shuffle(kinds)
    return kinds
