"""Records that the control plane, the engines and the client share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from elastic_dit.request import Stage, StageKey

__all__ = [
    "ArtifactRef",
    "Failure",
    "GpuId",
    "Phase",
    "PlacementPlan",
    "Progress",
    "StageRecord",
]

GpuId = int
"""Stable number of one GPU in the cluster: ``node * slots_per_node + index on the node``."""


class Phase(StrEnum):
    """Where a request stands. Three waits, three kinds of work, three ends."""

    QUEUED = "queued"
    ENCODING = "encoding"
    ENCODED = "encoded"
    DENOISING = "denoising"
    DENOISED = "denoised"
    DECODING = "decoding"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    # Enum's own hash is a Python call, and differs from that of the equal string.
    __hash__ = str.__hash__

    is_terminal: bool
    """Whether nothing more will happen to the request."""
    is_waiting: bool
    """Whether the request waits for a GPU."""

    def __init__(self, value: str) -> None:
        # Asked for several times with every event: attributes, no properties.
        self.is_terminal = value in ("completed", "failed", "cancelled")
        self.is_waiting = value in ("queued", "encoded", "denoised")

    @staticmethod
    def waiting_for(stage: Stage) -> Phase:
        """The wait before `stage`.

        >>> Phase.waiting_for(Stage.DIT)
        <Phase.ENCODED: 'encoded'>
        """
        return _WAITING_FOR[stage]

    @staticmethod
    def running(stage: Stage) -> Phase:
        """The work of `stage`.

        >>> Phase.running(Stage.DIT)
        <Phase.DENOISING: 'denoising'>
        """
        return _RUNNING[stage]


_WAITING_FOR = {
    Stage.ENCODER: Phase.QUEUED,
    Stage.DIT: Phase.ENCODED,
    Stage.DECODER: Phase.DENOISED,
}
_RUNNING = {
    Stage.ENCODER: Phase.ENCODING,
    Stage.DIT: Phase.DENOISING,
    Stage.DECODER: Phase.DECODING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """Where a stage's output lies: metadata only, the tensors stay on their producer.

    Attributes
    ----------
    request_id : str
    attempt : int
        The attempt that produced it.
    stage : Stage
        The stage that produced it.
    gpu : int
        The engine that holds it.
    nbytes : int
        Size of the tensors, bytes.
    digest : str
        Checksum of the encoded payload; the receiver compares.
    step : int
        Denoising steps done, for a snapshot; 0 for a whole stage's output.
    serial : int
        Tells apart what one engine made twice: a run that goes back to an older snapshot makes
        the same state again, after the first was released.
    """

    request_id: str
    attempt: int
    stage: Stage
    gpu: GpuId
    nbytes: int
    digest: str
    step: int = 0
    serial: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a stage of a request failed, as plain text that outlives the process.

    Attributes
    ----------
    error_type : str
        Class name of the exception.
    message : str
        Its message.
    stage : Stage
        Where it was raised.
    retryable : bool
        Whether another engine may do better (a lost worker) or not (a bad input).
    """

    error_type: str
    message: str
    stage: Stage
    retryable: bool = False

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out, on the GPU (torch's own error) or on the host.

        >>> Failure(error_type="OutOfMemoryError", message="", stage=Stage.DECODER).is_out_of_memory
        True
        """
        return self.error_type in ("OutOfMemoryError", "MemoryError")

    def __str__(self) -> str:
        return f"{self.error_type}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """One stage's share of a finished or running request: the row of a timeline.

    Attributes
    ----------
    stage : Stage
    gpus : tuple of int
        Engines that ran it, master first.
    started_at : float
        Seconds on the control plane's clock.
    seconds : float
        Time on the GPUs, seconds; queueing and transfer excluded.
    attempt : int
    """

    stage: Stage
    gpus: tuple[GpuId, ...]
    started_at: float
    seconds: float
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a client sees of its request.

    Attributes
    ----------
    request_id : str
    phase : Phase
    step, total_steps : int
        Denoising steps done and to do.
    dop : int
        GPUs at work on it now, 0 while it waits.
    queue_position : int
        Requests that wait for the same stage ahead of this one; 0 while it runs.
    eta_s : float or None
        Seconds until the result, None while nothing is known.
    attempt : int
    at : float
        Wall-clock time of the report, seconds since the epoch.
    """

    request_id: str
    phase: Phase
    step: int = 0
    total_steps: int = 0
    dop: int = 0
    queue_position: int = 0
    eta_s: float | None = None
    attempt: int = 1
    at: float = 0.0

    @property
    def fraction(self) -> float:
        """Denoising steps done over steps to do, 1 from the decoder on.

        >>> Progress(request_id="r", phase=Phase.DENOISING, step=3, total_steps=12).fraction
        0.25
        """
        if self.phase in (Phase.DENOISED, Phase.DECODING, Phase.COMPLETED):
            return 1.0
        return self.step / self.total_steps if self.total_steps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """Which stages shall be resident on which GPU, fenced by an epoch.

    Attributes
    ----------
    epoch : int
        Rises with every plan; a plan of an older epoch is ignored.
    residency : dict of int to frozenset of StageKey
        Wanted stages per GPU. A GPU that is not named keeps what it has.
    reason : str
        Why this plan, in a sentence for the decision log.
    nodes : int or None
        Machines wanted in all, None to leave that as it is.
    retire : tuple of str
        Machines to drain and give back. They stay on their way out, whether later plans name them
        or not, until one wants stages on their GPUs again.
    """

    epoch: int
    residency: dict[GpuId, frozenset[StageKey]] = field(default_factory=dict)
    reason: str = ""
    nodes: int | None = None
    retire: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Plain msgpack-able form.

        >>> plan = PlacementPlan(epoch=1, residency={0: frozenset({StageKey("m", Stage.DIT)})})
        >>> PlacementPlan.from_wire(plan.to_wire()) == plan
        True
        """
        return {
            "epoch": self.epoch,
            "residency": [
                [gpu, sorted([key.model, str(key.stage)] for key in keys)]
                for gpu, keys in self.residency.items()
            ],
            "reason": self.reason,
            "nodes": self.nodes,
            "retire": list(self.retire),
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> PlacementPlan:
        """Inverse of `to_wire`."""
        return cls(
            epoch=wire["epoch"],
            residency={
                gpu: frozenset(StageKey(model, Stage(stage)) for model, stage in keys)
                for gpu, keys in wire["residency"]
            },
            reason=wire["reason"],
            nodes=wire.get("nodes"),
            retire=tuple(wire.get("retire", ())),
        )
