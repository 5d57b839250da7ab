"""How much of a GPU's memory a stage takes: weights while it is resident, activations at work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from elastic_dit.cost.model import Shaped
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage, StageKey

__all__ = ["LinearMemory", "MemoryModel", "StageMemory", "fits"]


class MemoryModel(Protocol):
    """What stages take; None where that is not known."""

    def weights_bytes(self, key: StageKey) -> int | None:
        """Weights of a stage, bytes, as long as it is resident."""
        ...

    def activation_bytes(self, request: Shaped, stage: Stage) -> int | None:
        """Most that a stage takes beside its weights while it works on a request, bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """One stage: weights, and activations that grow with the size of the video.

    Attributes
    ----------
    weights_bytes : int
    base_bytes : int
        Activations that do not depend on the size.
    bytes_per_pixel : float
        And those that do, per pixel x frame. Attention without its matrix, convolutions and
        linear layers all keep a fixed number of values per token.
    """

    weights_bytes: int
    base_bytes: int = 0
    bytes_per_pixel: float = 0.0

    def __post_init__(self) -> None:
        for name in ("weights_bytes", "base_bytes", "bytes_per_pixel"):
            value = getattr(self, name)
            if not value >= 0:
                raise ConfigError(f"memory.{name}", value, "0 or more")


class LinearMemory:
    """A memory model of one `StageMemory` for each stage of each model.

    Parameters
    ----------
    stages : mapping of StageKey to StageMemory

    Examples
    --------
    >>> dit = StageKey("m", Stage.DIT)
    >>> memory = LinearMemory({dit: StageMemory(weights_bytes=28_000_000_000)})
    >>> memory.weights_bytes(dit), memory.weights_bytes(StageKey("m", Stage.DECODER))
    (28000000000, None)
    """

    def __init__(self, stages: Mapping[StageKey, StageMemory]) -> None:
        self.stages = dict(stages)

    def __repr__(self) -> str:
        return f"<LinearMemory of {len(self.stages)} stages>"

    def weights_bytes(self, key: StageKey) -> int | None:
        """See `MemoryModel`."""
        stage = self.stages.get(key)
        return stage.weights_bytes if stage else None

    def activation_bytes(self, request: Shaped, stage: Stage) -> int | None:
        """See `MemoryModel`."""
        known = self.stages.get(StageKey(request.model, stage))
        if known is None:
            return None
        pixels = request.width * request.height * request.num_frames
        return known.base_bytes + round(known.bytes_per_pixel * pixels)


def fits(weights_bytes: Iterable[int], activation_bytes: Iterable[int], memory_bytes: int) -> bool:
    """Whether stages may share a GPU (DisagFusion: weights + activations <= memory).

    All weights stay; of the activations only the largest counts, as a GPU works on one stage of
    one request at a time.

    Parameters
    ----------
    weights_bytes, activation_bytes : iterable of int
        Of each stage.
    memory_bytes : int
        Of the GPU.

    Examples
    --------
    >>> fits([14, 1], [5, 6], 24), fits([14, 10], [5, 2], 24)
    (True, False)
    """
    return sum(weights_bytes) + max(activation_bytes, default=0) <= memory_bytes
