"""What the processes of a verification are told, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from elastic_dit.engine.protocol import ModelSource
from elastic_dit.state import GpuId

__all__ = [
    "CANCEL",
    "Denoise",
    "Denoised",
    "Load",
    "MemberSettings",
    "Packed",
    "Prepare",
    "Prepared",
]

CANCEL = "cancel"
"""Told to a member: give up the jobs it has got."""


class Packed(NamedTuple):
    """A payload on its way between processes (see `elastic_dit.engine.payload`)."""

    header: bytes
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What one process needs to know.

    Attributes
    ----------
    gpu : int
        Its number in the plans.
    source : ModelSource
    device : str
        ``cuda:N`` or ``cpu``.
    backend : str
        ``gloo`` or ``nccl``.
    store : str
        ``host:port`` on which groups meet.
    limit_s : float
        Longest wait of any kind, seconds.
    cpu_threads : int
        Torch threads on a CPU.
    """

    gpu: GpuId
    source: ModelSource
    device: str
    backend: str
    store: str
    limit_s: float
    cpu_threads: int = 1


@dataclass(frozen=True, slots=True)
class Prepare:
    """Encode a prompt, load the transformer and denoise on one GPU; answered by `Prepared`.

    Attributes
    ----------
    fields : dict
        Of the request; what is missing takes the model's defaults.
    max_dop : int
    """

    fields: dict[str, Any]
    max_dop: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load the transformer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoise:
    """Take part in one run; answered by `Denoised`.

    Attributes
    ----------
    run : str
        Names the run.
    request : dict
    ticket : str
        The order by which the member joins; empty for the one that begins.
    orders : dict of int to tuple of int
        Groups, by the number of steps done.
    inputs : Packed or None
        The encoder's output, for the member that begins.
    """

    run: str
    request: dict[str, Any]
    ticket: str
    orders: dict[int, tuple[GpuId, ...]]
    inputs: Packed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoised:
    """How a member's part ended.

    Attributes
    ----------
    end : str
        Value of `elastic_dit.engine.group_context.End`.
    reason : str
    changes : tuple of tuple
        Steps done and members, for each group it was in.
    refusals : tuple of str
    payload : Packed or None
        What would go to the decoder, from the member that finished.
    """

    end: str
    reason: str
    changes: tuple[tuple[int, tuple[GpuId, ...]], ...]
    refusals: tuple[str, ...] = ()
    payload: Packed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The request and its result on one GPU.

    Attributes
    ----------
    request : dict
        Complete.
    steps : int
        Denoising steps of the session.
    dops : tuple of int
        Degrees of parallelism that the request allows.
    kind : str
        Of the GPU.
    encoded, reference : Packed
        What the encoder gave, and what would go to the decoder.
    seconds : float
        Time that denoising took.
    """

    request: dict[str, Any]
    steps: int
    dops: tuple[int, ...]
    kind: str
    encoded: Packed
    reference: Packed
    seconds: float
