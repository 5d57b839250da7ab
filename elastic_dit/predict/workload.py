"""What is asked of a cluster: rate, mix, and what each stage of it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["MixPart", "RatioPredictor", "Workload", "check_gpus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPart:
    """One shape and number of steps among the requests.

    Attributes
    ----------
    share : float
        Part of the requests, in any unit above 0: only the proportion to the others counts.
    seconds : mapping of Stage to float
        GPU-seconds of each stage of one such request, at DoP 1 on a GPU of speed 1.
    width, height : int
        Pixels.
    num_frames : int
    num_inference_steps : int
    """

    share: float
    seconds: Mapping[Stage, float]
    width: int = 0
    height: int = 0
    num_frames: int = 1
    num_inference_steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests as they come, and what they cost.

    Attributes
    ----------
    rate_hz : float
        Mean arrivals per second; 0 where none come.
    stage_seconds : mapping of Stage to float
        Mean GPU-seconds of one request in each stage, at DoP 1 on a GPU of speed 1. A stage that
        is missing, or takes 0, is not needed.
    mix : tuple of MixPart
        Shapes and steps, where they are known; empty stands for requests all alike.
    stage_bytes : mapping of Stage to int
        Weights of a stage, bytes, where they are known.
    speeds : mapping of str to float
        By GPU kind, how fast it is compared with the kind that `stage_seconds` hold for; a kind
        that is missing has speed 1.

    Raises
    ------
    ConfigError
        Where a rate or time is negative or not finite, a speed not above 0, or no stage is needed.

    Examples
    --------
    >>> workload = Workload(rate_hz=0.1, stage_seconds={
    ...     Stage.ENCODER: 5.45, Stage.DIT: 73.5, Stage.DECODER: 9.7})
    >>> workload.needed
    (<Stage.ENCODER: 'encoder'>, <Stage.DIT: 'dit'>, <Stage.DECODER: 'decoder'>)
    """

    rate_hz: float
    stage_seconds: Mapping[Stage, float]
    mix: tuple[MixPart, ...] = ()
    stage_bytes: Mapping[Stage, int] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.rate_hz < math.inf:
            raise ConfigError("rate_hz", self.rate_hz, "a finite number of 0 or more")
        for stage, seconds in self.stage_seconds.items():
            if not 0 <= seconds < math.inf:
                raise ConfigError(f"stage_seconds.{stage}", seconds, "finite and 0 or more")
        for kind, speed in self.speeds.items():
            if not 0 < speed < math.inf:
                raise ConfigError(f"speeds.{kind}", speed, "a finite number above 0")
        if not self.needed:
            raise ConfigError("stage_seconds", dict(self.stage_seconds), "above 0 for a stage")

    @property
    def needed(self) -> tuple[Stage, ...]:
        """Stages that take time, in their order."""
        return tuple(stage for stage in Stage if self.stage_seconds.get(stage, 0.0) > 0)

    def variation(self, stage: Stage) -> float:
        """Standard deviation over mean of a stage's seconds; 0 where all requests are alike.

        >>> halves = [MixPart(share=1, seconds={Stage.DIT: s}) for s in (10.0, 30.0)]
        >>> Workload.of_mix(1.0, halves).variation(Stage.DIT)
        0.5
        """
        mean = self.stage_seconds.get(stage, 0.0)
        whole = sum(part.share for part in self.mix)
        if not mean or not whole:
            return 0.0
        square = sum(part.share * (part.seconds.get(stage, 0.0) - mean) ** 2 for part in self.mix)
        return math.sqrt(square / whole) / mean

    @classmethod
    def of_mix(
        cls,
        rate_hz: float,
        mix: Iterable[MixPart],
        *,
        stage_bytes: Mapping[Stage, int] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> Self:
        """A workload whose means follow from its mix.

        Raises
        ------
        ConfigError
            As the class, or where the shares make no mix.
        """
        parts = tuple(mix)
        whole = sum(part.share for part in parts)
        if any(not part.share > 0 for part in parts) or not 0 < whole < math.inf:
            raise ConfigError("mix", [part.share for part in parts], "shares above 0")
        means = {
            stage: sum(part.share * part.seconds.get(stage, 0.0) for part in parts) / whole
            for stage in Stage
        }
        return cls(
            rate_hz=rate_hz,
            stage_seconds=means,
            mix=parts,
            stage_bytes=stage_bytes or {},
            speeds=speeds or {},
        )


class RatioPredictor(Protocol):
    """Says how many GPUs each stage should have; pure and deterministic."""

    def predict(self, workload: Workload, gpus: Mapping[str, int]) -> Mapping[Stage, int]:
        """Instances per stage, one GPU each.

        Parameters
        ----------
        workload : Workload
        gpus : mapping of str to int
            GPUs there are, by kind; ``{"": 8}`` where kinds do not matter.

        Returns
        -------
        mapping of Stage to int
            At least 1 for each stage that `workload` needs and 0 for the others; in sum all GPUs.

        Raises
        ------
        ConfigError
            Where there are fewer GPUs than stages needed: then stages must share GPUs, which
            is for a placement that packs.
        """
        ...


def check_gpus(workload: Workload, gpus: Mapping[str, int]) -> int:
    """Number of all GPUs.

    Raises
    ------
    ConfigError
        Where a number is negative, or they are fewer than the stages needed.
    """
    for kind, count in gpus.items():
        if count < 0:
            raise ConfigError(f"gpus.{kind}", count, "0 or more")
    total = sum(gpus.values())
    if total < len(workload.needed):
        raise ConfigError("gpus", total, f"{len(workload.needed)} or more, one for each stage")
    return total
