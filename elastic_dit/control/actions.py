"""What a dispatch policy may ask for. Used by module: ``actions.Start(...)``.

A policy names GPUs and gives its reason; the controller adds fences and inputs, and refuses what
cannot be (a busy GPU, a stage that is not resident), which it notes in the decision log.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.state import GpuId

__all__ = ["Action", "Preempt", "Prefetch", "Resize", "Start"]


@dataclass(frozen=True, slots=True)
class Start:
    """Start the stage a request waits for on free GPUs.

    Attributes
    ----------
    request_id : str
    gpus : tuple of int
        In any order; the lowest becomes the master.
    reason : str
        For the decision log.
    """

    request_id: str
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the group of a running DiT stage at its next step boundary.

    Attributes
    ----------
    request_id : str
    gpus : tuple of int
        The whole coming group: members that stay and free GPUs that join.
    reason : str
    """

    request_id: str
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a running DiT stage at its next step boundary; it waits again, with a snapshot."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Let a busy GPU pull the inputs of a waiting request that it will probably run next."""

    request_id: str
    gpu: GpuId
    reason: str


Action = Start | Resize | Preempt | Prefetch
