"""What a cost model answers, and what follows from any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["CostBook", "CostModel", "Shaped", "best_dop", "optimal_dop", "step_time_cuts"]


class Shaped(Protocol):
    """What of a request its cost depends on; `GenerationRequest` has all of it."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def width(self) -> int:
        """Pixels."""
        ...

    @property
    def height(self) -> int:
        """Pixels."""
        ...

    @property
    def num_frames(self) -> int:
        """Frames; 1 for an image."""
        ...

    @property
    def num_inference_steps(self) -> int:
        """Denoising steps."""
        ...


class CostModel(Protocol):
    """Deterministic durations.

    `kind` is a GPU kind; None means the one the model was made for, and a model made for one
    kind takes every kind for that.

    ``stage_seconds(r, DIT, d) - r.num_inference_steps * step_seconds(r, d)`` is what the DiT
    stage needs once, before its first step.
    """

    def stage_seconds(
        self, request: Shaped, stage: Stage, dop: int = 1, kind: str | None = None
    ) -> float:
        """Seconds of a whole stage on `dop` GPUs, waits and transfers excluded.

        Raises
        ------
        ConfigError
            Where model, DoP or GPU kind is not known.
        """
        ...

    def step_seconds(self, request: Shaped, dop: int, kind: str | None = None) -> float:
        """Seconds of one denoising step on `dop` GPUs.

        Raises
        ------
        ConfigError
            As `stage_seconds`.
        """
        ...

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:
        """Degrees of parallelism this request may run at, rising."""
        ...


class CostBook:
    """One cost model for each served model.

    Parameters
    ----------
    by_model : mapping of str to CostModel

    Examples
    --------
    >>> from elastic_dit.cost import LatencyLaw, LawCost
    >>> law = LatencyLaw(rate=1e6, bandwidth=1e7, overhead_s=0.01)
    >>> book = CostBook({"shapes": LawCost({Stage.DIT: law}, dops=(1, 2))})
    >>> book
    <CostBook shapes>
    """

    def __init__(self, by_model: Mapping[str, CostModel]) -> None:
        self.by_model = dict(by_model)

    def __repr__(self) -> str:
        return f"<CostBook {', '.join(sorted(self.by_model)) or 'empty'}>"

    def _of(self, request: Shaped) -> CostModel:
        try:
            return self.by_model[request.model]
        except KeyError:
            known = ", ".join(sorted(self.by_model)) or "none"
            raise ConfigError("model", request.model, f"a profiled model ({known})") from None

    def stage_seconds(
        self, request: Shaped, stage: Stage, dop: int = 1, kind: str | None = None
    ) -> float:
        """Seconds of a whole stage; see `CostModel`."""
        return self._of(request).stage_seconds(request, stage, dop, kind)

    def step_seconds(self, request: Shaped, dop: int, kind: str | None = None) -> float:
        """Seconds of one denoising step; see `CostModel`."""
        return self._of(request).step_seconds(request, dop, kind)

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:
        """Degrees of parallelism this request may run at; see `CostModel`."""
        return self._of(request).allowed_dops(request)


def step_time_cuts(seconds_by_dop: Mapping[int, float]) -> dict[int, float]:
    """Relative cut z of the step time by each doubling of the DoP (DDiT eq. 4, Figure 8).

    Parameters
    ----------
    seconds_by_dop : mapping of int to float
        Step time, seconds; a DoP whose half is missing has no entry in the result.

    Examples
    --------
    >>> step_time_cuts({1: 2.0, 2: 1.0, 4: 0.75})
    {2: 0.5, 4: 0.25}
    """
    return {
        dop: 1.0 - seconds / seconds_by_dop[dop // 2]
        for dop, seconds in sorted(seconds_by_dop.items())
        if dop % 2 == 0 and dop // 2 in seconds_by_dop
    }


def best_dop(seconds_by_dop: Mapping[int, float]) -> int:
    """`B` of DDiT §4.2.3 from step times; the lowest DoP where no doubling helps.

    Parameters
    ----------
    seconds_by_dop : mapping of int to float
        Step time, seconds.

    Examples
    --------
    >>> best_dop({1: 2.0, 2: 1.2, 4: 0.6}), best_dop({1: 1.0, 2: 1.1})
    (4, 1)
    """
    cuts = step_time_cuts(seconds_by_dop)
    best = max(cuts, key=lambda dop: cuts[dop], default=None)
    return best if best is not None and cuts[best] > 0 else min(seconds_by_dop, default=1)


def optimal_dop(
    cost: CostModel, request: Shaped, kind: str | None = None, most: int | None = None
) -> int:
    """`B` of DDiT §4.2.3: the DoP whose doubling gives the largest cut of the step time.

    The lowest allowed DoP where no doubling helps.

    Parameters
    ----------
    cost : CostModel
    request : Shaped
    kind : str, optional
        GPU kind.
    most : int, optional
        Largest DoP to consider, such as the GPUs of a node.

    Examples
    --------
    >>> from elastic_dit.cost import read_stage_latencies
    >>> from elastic_dit.request import GenerationRequest
    >>> request = GenerationRequest.parse(
    ...     request_id="r1", model="opensora", prompt="a circle", width=640, height=360,
    ...     num_frames=51, fps=24, num_inference_steps=30, guidance_scale=7.0, seed=7)
    >>> optimal_dop(read_stage_latencies(), request)
    4
    """
    dops = [dop for dop in cost.allowed_dops(request) if most is None or dop <= most]
    return best_dop({dop: cost.step_seconds(request, dop, kind) for dop in dops})
