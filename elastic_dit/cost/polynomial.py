"""Quadratic stage costs over named quantities: the form of the public GF-DiT cost models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastic_dit.cost.model import Shaped
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["QUANTITIES", "LatentGeometry", "Polynomial", "PolynomialCost"]

QUANTITIES = ("latent_seq_len", "num_steps", "ones", "text_seq_len", "voxels")
"""What a polynomial's ``x_name`` may be."""

_MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentGeometry:
    """How pixels become tokens.

    Attributes
    ----------
    spatial, temporal : int
        Compression of the VAE.
    patch_height, patch_width : int
        Latent pixels per token.
    text_tokens : int
        Length the text encoder pads to.

    Examples
    --------
    >>> LatentGeometry().tokens(width=832, height=480, num_frames=81)
    32760
    """

    spatial: int = 8
    temporal: int = 4
    patch_height: int = 2
    patch_width: int = 2
    text_tokens: int = 512

    def tokens(self, *, width: int, height: int, num_frames: int) -> int:
        """Length of the DiT's sequence."""
        rows = height // (self.spatial * self.patch_height)
        columns = width // (self.spatial * self.patch_width)
        return ((num_frames - 1) // self.temporal + 1) * rows * columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomial:
    """``max(0, a x**2 + b x + c)`` milliseconds of the quantity named `x_name`.

    Examples
    --------
    >>> Polynomial(x_name="voxels", a=0.0, b=0.5, c=100.0).seconds(1000.0)
    0.6
    """

    x_name: str
    a: float
    b: float
    c: float

    def seconds(self, x: float) -> float:
        """Duration at `x`, seconds."""
        return max(0.0, self.a * x * x + self.b * x + self.c) / _MS_PER_S


class PolynomialCost:
    """A cost model of polynomials by DoP and task.

    The DiT stage is ``dit_prepare`` and ``timestep_prepare`` once and ``dit_step_chunk`` for each
    step; the decoder is ``vae_decode`` and ``finalize``.

    Parameters
    ----------
    tasks : mapping of int to mapping of str to Polynomial
        By DoP.
    geometry : LatentGeometry
    """

    def __init__(
        self,
        tasks: Mapping[int, Mapping[str, Polynomial]],
        geometry: LatentGeometry | None = None,
    ) -> None:
        self.tasks = dict(tasks)
        self.geometry = geometry or LatentGeometry()
        self.dops = tuple(sorted(self.tasks))

    def __repr__(self) -> str:
        return f"<PolynomialCost DoP {', '.join(map(str, self.dops))}>"

    def _seconds(self, request: Shaped, task: str, dop: int) -> float:
        if dop not in self.tasks:
            raise ConfigError("dop", dop, f"one of {', '.join(map(str, self.dops))}")
        polynomial = self.tasks[dop][task]
        return polynomial.seconds(self._quantity(request, polynomial.x_name))

    def _quantity(self, request: Shaped, name: str) -> float:
        if name == "latent_seq_len":
            return self.geometry.tokens(
                width=request.width, height=request.height, num_frames=request.num_frames
            )
        if name == "voxels":
            return request.width * request.height * request.num_frames
        if name == "text_seq_len":
            return self.geometry.text_tokens
        return request.num_inference_steps if name == "num_steps" else 1.0

    def stage_seconds(
        self,
        request: Shaped,
        stage: Stage,
        dop: int = 1,
        kind: str | None = None,
    ) -> float:
        """Seconds of a whole stage; see `CostModel`. Encoder and decoder use one GPU."""
        if stage is Stage.ENCODER:
            return self._seconds(request, "text_encode", 1)
        if stage is Stage.DECODER:
            return sum(self._seconds(request, task, 1) for task in ("vae_decode", "finalize"))
        prepare = sum(
            self._seconds(request, task, dop) for task in ("dit_prepare", "timestep_prepare")
        )
        return prepare + request.num_inference_steps * self.step_seconds(request, dop, kind)

    def step_seconds(
        self,
        request: Shaped,
        dop: int,
        kind: str | None = None,  # noqa: ARG002
    ) -> float:
        """Seconds of one denoising step; see `CostModel`."""
        return self._seconds(request, "dit_step_chunk", dop)

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:  # noqa: ARG002
        """Degrees of parallelism with polynomials; see `CostModel`."""
        return self.dops
