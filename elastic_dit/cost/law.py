"""A fitted law: compute shared by n GPUs, their traffic, and what does not shrink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from elastic_dit.cost.model import Shaped
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["LatencyLaw", "LawCost", "Sample"]

_DOPS = (1, 2, 4, 8)


class Sample(NamedTuple):
    """One measurement.

    Attributes
    ----------
    work : float
        Size of the task, such as pixels x frames or FLOPs.
    dop : int
        GPUs it ran on.
    seconds : float
        How long it took, above 0.
    """

    work: float
    dop: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLaw:
    """``t(n) = work / (n * rate) + traffic(n) / bandwidth + overhead``.

    A GPU of a Ulysses group holds ``1/n`` of the sequence and sends ``(n - 1)/n`` of that away,
    so ``traffic(n) = work * (n - 1) / n**2``.

    Attributes
    ----------
    rate : float
        Work per second on one GPU; infinite where computing costs nothing.
    bandwidth : float
        Work per second over one GPU's link; infinite where traffic costs nothing.
    overhead_s : float
        Seconds that no GPU takes away: launches, small layers.

    Examples
    --------
    >>> law = LatencyLaw(rate=100.0, bandwidth=1000.0, overhead_s=0.5)
    >>> law.seconds(400.0, 1), law.seconds(400.0, 4)
    (4.5, 1.575)
    """

    rate: float
    bandwidth: float
    overhead_s: float

    def seconds(self, work: float, dop: int) -> float:
        """Duration on `dop` GPUs, seconds."""
        return work / (dop * self.rate) + _traffic(work, dop) / self.bandwidth + self.overhead_s

    @classmethod
    def fit(cls, samples: Iterable[Sample]) -> Self:
        """Non-negative least squares of the *relative* error.

        Raises
        ------
        ConfigError
            Where no sample is given, or one took no time.

        Examples
        --------
        >>> truth = LatencyLaw(rate=100.0, bandwidth=1000.0, overhead_s=0.5)
        >>> fitted = LatencyLaw.fit(
        ...     Sample(work, dop, truth.seconds(work, dop))
        ...     for work in (100.0, 400.0) for dop in (1, 2, 4, 8))
        >>> round(fitted.rate, 6), round(fitted.bandwidth, 6), round(fitted.overhead_s, 6)
        (100.0, 1000.0, 0.5)
        """
        import numpy as np
        from scipy.optimize import nnls

        rows = list(samples)
        if not rows:
            raise ConfigError("samples", rows, "at least one measurement")
        for sample in rows:
            if not sample.seconds > 0:
                raise ConfigError("seconds", sample.seconds, "above 0")
        # Dividing each row by its time weighs a short task's error like a long one's.
        terms = np.array([(s.work / s.dop, _traffic(s.work, s.dop), 1.0) for s in rows])
        scaled = terms / np.array([[s.seconds] for s in rows])
        # Columns differ by many powers of ten; nnls wants them alike.
        sizes = np.abs(scaled).max(axis=0)
        sizes[sizes == 0] = 1.0
        solution = nnls(scaled / sizes, np.ones(len(rows)))[0] / sizes
        per_work, per_traffic, overhead = (float(value) for value in solution)
        return cls(rate=_inverse(per_work), bandwidth=_inverse(per_traffic), overhead_s=overhead)

    def worst_error(self, samples: Iterable[Sample]) -> float:
        """Largest relative error over `samples`, 0.1 for ten per cent."""
        return max(abs(self.seconds(s.work, s.dop) / s.seconds - 1.0) for s in samples)


class LawCost:
    """A cost model of one fitted law per stage; work is pixels x frames.

    Parameters
    ----------
    laws : mapping of Stage to LatencyLaw
        For `Stage.DIT` of one step. A stage without a law takes no time.
    dops : tuple of int
        Degrees of parallelism on offer, rising.
    """

    def __init__(self, laws: Mapping[Stage, LatencyLaw], dops: tuple[int, ...] = _DOPS) -> None:
        self.laws = dict(laws)
        self.dops = dops

    def __repr__(self) -> str:
        return f"<LawCost {', '.join(self.laws)}>"

    def stage_seconds(
        self, request: Shaped, stage: Stage, dop: int = 1, kind: str | None = None
    ) -> float:
        """Seconds of a whole stage; see `CostModel`."""
        if stage is Stage.DIT:
            return request.num_inference_steps * self.step_seconds(request, dop, kind)
        law = self.laws.get(stage)
        return law.seconds(_pixels(request), 1) if law else 0.0

    def step_seconds(
        self,
        request: Shaped,
        dop: int,
        kind: str | None = None,  # noqa: ARG002
    ) -> float:
        """Seconds of one denoising step; see `CostModel`."""
        if dop not in self.dops:
            raise ConfigError("dop", dop, f"one of {', '.join(map(str, self.dops))}")
        law = self.laws.get(Stage.DIT)
        return law.seconds(_pixels(request), dop) if law else 0.0

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:  # noqa: ARG002
        """Degrees of parallelism on offer; see `CostModel`."""
        return self.dops


def _pixels(request: Shaped) -> float:
    return float(request.width * request.height * request.num_frames)


def _traffic(work: float, dop: int) -> float:
    return work * (dop - 1) / dop**2


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0 else float("inf")
