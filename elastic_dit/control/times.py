"""What stages are known or expected to take: seen, profiled or guessed, where it is allowed."""

from __future__ import annotations

from elastic_dit.control.progress import ObservedTimes
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.view import StageTimes
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["AllowedTimes", "ExpectedTimes", "KnownTimes"]

_DOUBLING = 0.625
"""Step time left by doubling the GPUs, until that was seen: an efficiency of 80 %, as DDiT's
Figure 8 shows where a request is large enough to be worth it."""


class KnownTimes:
    """`StageTimes` of what was seen here; else of a profile; None where neither knows.

    Parameters
    ----------
    observed : ObservedTimes
    profile : StageTimes or None
        Of a cost model, where there is one.
    """

    def __init__(self, observed: ObservedTimes, profile: StageTimes | None = None) -> None:
        self._observed = observed
        self._profile = profile

    def __repr__(self) -> str:
        return f"<KnownTimes {self._observed!r}, profile {self._profile!r}>"

    @property
    def shapes(self) -> int:
        """See `ObservedTimes.shapes`; grows also when the profile is read anew."""
        profiled: int = getattr(self._profile, "shapes", 0)
        return self._observed.shapes + profiled

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """See `StageTimes.seconds`."""
        seen = self._observed.seconds(request, stage, dop, kind)
        if seen is not None or self._profile is None:
            return seen
        return self._profile.seconds(request, stage, dop, kind)


class ExpectedTimes:
    """`StageTimes` of what was seen here; else of a profile; else a guess.

    A policy that asks only for what was seen would never try a degree of parallelism for the
    first time, and could not tell a long request from a short one the first time it sees their
    shapes. What it tries is seen, and then the guess is forgotten.

    Parameters
    ----------
    observed : ObservedTimes
    profile : StageTimes or None
        Of a cost model, where there is one.

    Attributes
    ----------
    known : KnownTimes
        The same without a guess.

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r", model="m", prompt="p", width=64, height=64, num_frames=1, fps=8,
    ...     num_inference_steps=4, guidance_scale=1.0, seed=0)
    >>> observed = ObservedTimes()
    >>> observed.observe(request, Stage.DIT, 1, 1.0)
    >>> times = ExpectedTimes(observed)
    >>> times.seconds(request, Stage.DIT, 2)
    0.625
    >>> times.seconds(request.model_copy(update={"num_frames": 5}), Stage.DIT)
    5.0
    >>> observed.observe(request, Stage.DIT, 2, 0.9)
    >>> times.seconds(request, Stage.DIT, 2), times.seconds(request, Stage.DIT, 4)
    (0.9, 0.5625)
    """

    def __init__(self, observed: ObservedTimes, profile: StageTimes | None = None) -> None:
        self._observed = observed
        self.known = KnownTimes(observed, profile)

    def __repr__(self) -> str:
        return f"<ExpectedTimes {self.known!r}>"

    @property
    def shapes(self) -> int:
        """See `KnownTimes.shapes`."""
        return self.known.shapes

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """See `StageTimes.seconds`."""
        known = self.known.seconds(request, stage, dop, kind)
        if known is not None:
            return known
        if dop == 1:
            return self._observed.guess(request, stage)
        if stage is not Stage.DIT or dop % 2:
            return None
        half = self.seconds(request, stage, dop // 2, kind)
        return None if half is None else _DOUBLING * half


class AllowedTimes:
    """`StageTimes` that know of no degree of parallelism a request cannot run at.

    Parameters
    ----------
    times : StageTimes
    table : RequestTable
        Where the engines' word on each request is kept.

    Attributes
    ----------
    widest : int or None
        Largest group that can form at present; None for no limit.
    learns : bool
        Whether times are observed, so that `shapes` may grow.
    """

    def __init__(self, times: StageTimes, table: RequestTable) -> None:
        self._times = times
        self._table = table
        self.widest: int | None = None
        # With every step: looking each time for what is missing is slow.
        self.learns = hasattr(times, "shapes")

    def __repr__(self) -> str:
        return f"<AllowedTimes {self._times!r}, DoP up to {self.widest or 'any'}>"

    @property
    def shapes(self) -> int:
        """How many shapes were seen so far where times are observed; 0 where they are given."""
        return getattr(self._times, "shapes", 0) if self.learns else 0

    def allows(self, request: GenerationRequest, dop: int) -> bool:
        """Whether a group of that size could run the request."""
        if dop == 1:
            return True
        if self.widest is not None and dop > self.widest:
            return False
        record = self._table.live.get(request.request_id)
        return record is None or not record.dops or dop in record.dops

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """See `StageTimes.seconds`; None also for what is not allowed."""
        if dop > 1 and stage is Stage.DIT and not self.allows(request, dop):
            return None
        return self._times.seconds(request, stage, dop, kind)
