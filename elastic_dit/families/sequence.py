"""How a family's token sequence may be divided over the GPUs of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["IMAGE", "TEXT", "Cut", "Patch", "SequencePlan", "SequenceShape", "allowed_dops"]

IMAGE = "hidden_states"
"""Stream of the image's or video's tokens, by the name diffusers gives it."""
TEXT = "encoder_hidden_states"
"""Stream of the text's tokens, in families whose attention joins both."""


class Cut(NamedTuple):
    """Where a tensor is divided.

    Attributes
    ----------
    dim : int
        Its token dimension.
    ndim : int
        Dimensions it has when it is one of these tensors; others are left whole.
    output : bool
        Whether a module's output is divided instead of its input.
    """

    dim: int
    ndim: int
    output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlan:
    """Division of a family's transformers by sequence.

    Attributes
    ----------
    attention : mapping of str to tuple of str
        Attention modules whose queries *and* keys are divided, as dotted patterns with ``*`` for
        one part, each with the streams it joins in its order. Cross-attention to a whole text
        is not among them: it needs no exchange.
    some_attention : mapping of str to tuple of str
        The same, of modules that not every model of the family has.
    cuts : mapping or None
        Per module, which inputs (by name) or outputs (by position) are divided; a tuple where
        the input is a pair. None takes the plan that the diffusers class itself has.
    joins : mapping of str to int
        Modules after which the image stream is whole again, with its token dimension.

    Examples
    --------
    >>> plan = SequencePlan(attention={"blocks.*.attn1": (IMAGE,)})
    >>> plan.cuts is None, plan.joins
    (True, {'proj_out': 1})
    """

    attention: Mapping[str, tuple[str, ...]]
    some_attention: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuts: Mapping[str, Mapping[str | int, Cut | tuple[Cut, ...]]] | None = None
    joins: Mapping[str, int] = field(default_factory=lambda: {"proj_out": 1})

    @property
    def divides_text(self) -> bool:
        """Whether some attention joins the text with the image, so that both are divided."""
        return any(TEXT in streams for streams in self.attention.values())


class Patch(NamedTuple):
    """What one token of a transformer stands for.

    Attributes
    ----------
    side : int
        Pixels along its width and height: the VAE's compression times the patch size.
    frames : int
        Frames of one latent, the VAE's compression in time; but the first frame has one alone.
    depth : int
        Latents in time that one token takes in.

    Examples
    --------
    Wan 2.1 at 832 x 480 and 81 frames.

    >>> Patch(side=16, frames=4).tokens(832, 480, 81)
    32760
    """

    side: int
    frames: int = 1
    depth: int = 1

    def tokens(self, width: int, height: int, num_frames: int) -> int:
        """Tokens of an image or video of that size."""
        latents = 1 + (num_frames - 1) // self.frames
        return -(-latents // self.depth) * (height // self.side) * (width // self.side)


class SequenceShape(NamedTuple):
    """What of a request decides over its degrees of parallelism.

    Attributes
    ----------
    heads : int
        Attention heads of the transformer.
    tokens : int
        Tokens of the image or video.
    text_tokens : int or None
        Tokens of the shortest text of its guidance branches; None where the text is not divided.
    """

    heads: int
    tokens: int
    text_tokens: int | None = None


def allowed_dops(shape: SequenceShape, limit: int) -> tuple[int, ...]:
    """Degrees of parallelism, powers of two up to `limit`, at which every member has work.

    Ulysses (arXiv:2309.14509) divides tokens outside attention and heads inside it. Neither
    need divide evenly; but each member must hold a token of each stream, and one without a head
    of its own would only wait.

    Parameters
    ----------
    shape : SequenceShape
    limit : int
        Largest group.

    Examples
    --------
    Wan 2.1 1.3B has 12 heads, and a square Qwen-Image of 1328 pixels 83 x 83 tokens.

    >>> allowed_dops(SequenceShape(heads=12, tokens=32760), 8)
    (1, 2, 4)
    >>> allowed_dops(SequenceShape(heads=24, tokens=83 * 83, text_tokens=20), 8)
    (1, 2, 4, 8)
    >>> allowed_dops(SequenceShape(heads=24, tokens=83 * 83, text_tokens=5), 8)
    (1, 2, 4)
    """
    dops = [2**power for power in range(limit.bit_length())]
    return tuple(dop for dop in dops if dop == 1 or _divides(shape, dop))


def _divides(shape: SequenceShape, dop: int) -> bool:
    each = -(-shape.heads // dop)
    shortest = shape.tokens if shape.text_tokens is None else min(shape.tokens, shape.text_tokens)
    return each * (dop - 1) < shape.heads and shortest >= dop
