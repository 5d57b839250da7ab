"""How far two results are from each other, and how far they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from elastic_dit.engine.payload import map_tensors
from elastic_dit.errors import ConfigError

__all__ = ["TOLERANCES", "Reference", "tolerance_of"]

TOLERANCES = {"float32": 1e-5, "bfloat16": 0.05, "float16": 0.01}
"""Largest error that passes, by dtype, as a share of the largest latent.

At another degree of parallelism matrix products and attention have other shapes, so a kernel may
add the same numbers in another order and round the last bit otherwise: 1.2e-7 of a value in
float32, 7.8e-3 in bfloat16, 9.8e-4 in float16. In float32 that grew to a few parts in a million
over all layers and steps in every family (``docs/families.md``). The other two leave room for a
few last bits; tiny models on CPUs differed by none or one. A wrong result, such as one of which a
GPU saw only its own keys, is off by a good part of the latents themselves.
"""


@dataclass(frozen=True)
class Reference:
    """The result on one GPU.

    Attributes
    ----------
    payload : payload
        What would go to the decoder.
    tolerance : float
        Largest error allowed, as a share of the largest latent or of 1, whichever is more.

    Examples
    --------
    >>> reference = Reference({"latents": torch.tensor([2.0, -2.0])}, tolerance=1e-5)
    >>> reference.limit, reference.error({"latents": torch.tensor([2.0, -1.5])})
    (2e-05, 0.5)
    """

    payload: Any
    tolerance: float

    @property
    def largest(self) -> float:
        """Largest absolute value of an element."""
        return max((float(t.abs().max()) for t in _tensors(self.payload)), default=0.0)

    @property
    def limit(self) -> float:
        """Largest absolute error allowed."""
        return self.tolerance * max(1.0, self.largest)

    def error(self, payload: Any) -> float:
        """Largest absolute difference of an element; infinite where it is no number.

        Parameters
        ----------
        payload : payload
            Of the same form.
        """
        ours, theirs = _tensors(self.payload), _tensors(payload)
        if [t.shape for t in ours] != [t.shape for t in theirs]:
            return math.inf
        differences = (float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
        return max((d if math.isfinite(d) else math.inf for d in differences), default=0.0)


def tolerance_of(dtype: str) -> float:
    """Entry of `TOLERANCES`.

    Raises
    ------
    ConfigError
        Where there is none.
    """
    if dtype not in TOLERANCES:
        raise ConfigError("dtype", dtype, f"one of {', '.join(TOLERANCES)}")
    return TOLERANCES[dtype]


def _tensors(payload: Any) -> list[torch.Tensor]:
    """All that are not empty, in float64, in the order of the payload."""
    found: list[torch.Tensor] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            found.append(leaf.double())
        return leaf

    map_tensors(note, payload)
    return found
