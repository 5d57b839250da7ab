"""What the control plane tells its shell to do."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import ArtifactRef, Failure, GpuId, StageRecord

__all__ = [
    "Abort",
    "AskNodes",
    "Cancelled",
    "Command",
    "Complete",
    "DropStage",
    "Fail",
    "LoadStage",
    "Preempt",
    "Prefetch",
    "Release",
    "ReleaseNode",
    "Replicate",
    "Resize",
    "RestartEngine",
    "StartStage",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStage:
    """Run a stage on a group; the master (lowest GPU id) comes first in `gpus`.

    `inputs` are pulled by the group from where they lie. For a DiT stage they may hold a
    snapshot (``step > 0``), from which it goes on. `tiled` asks a decoder to take less memory.
    """

    request: GenerationRequest
    attempt: int
    epoch: int
    stage: Stage
    gpus: tuple[GpuId, ...]
    inputs: tuple[ArtifactRef, ...]
    reason: str
    tiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """Pull the inputs of a stage that will soon start here, while the GPU computes another's."""

    request_id: str
    attempt: int
    stage: Stage
    gpu: GpuId
    inputs: tuple[ArtifactRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Change the group of a running DiT stage at its next step boundary (promotion, demotion).

    `epoch` is the coming one: the first message that carries it confirms the change. An engine
    that has left the stage at its end ignores it; one that joins in vain is told by `Abort`.
    After a member was lost it orders the survivors to carry on from the last boundary.

    `since` is the epoch of its `StartStage`; `present` are the GPUs that it holds now, which are
    told too; `lost` those that died among them; `request` is for those that join.
    """

    request_id: str
    attempt: int
    epoch: int
    gpus: tuple[GpuId, ...]
    reason: str
    since: int = 0
    present: tuple[GpuId, ...] = ()
    lost: tuple[GpuId, ...] = ()
    request: GenerationRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Stop a running DiT stage at its next step boundary and keep a snapshot."""

    request_id: str
    attempt: int
    epoch: int
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Stop a running stage as soon as possible and forget what it has.

    Always answered under the same fence: with `StageAborted`, also by an engine that has nothing
    of it, unless the stage's own end is on its way already. It means older epochs of the same
    attempt too.
    """

    request_id: str
    attempt: int
    epoch: int
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An artifact is no longer needed: its holder, ``artifact.gpu``, drops it.

    Where that is not the producer, it is a copy made by `Prefetch` that will not be used there, or
    by `Replicate`, also while that is still under way.
    """

    artifact: ArtifactRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Pull a copy of an artifact and keep it until its release; answered by `ArtifactCopied`.

    It is pulled beside the GPU's work. The copy is `artifact` with this `gpu`.
    """

    artifact: ArtifactRef
    gpu: GpuId


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The request has its result; terminal."""

    request_id: str
    result: ArtifactRef
    records: tuple[StageRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The request ends without a result; terminal."""

    request_id: str
    failure: Failure
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The request was cancelled; terminal for its client, though a GPU may still wind down."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStage:
    """Make a stage resident on a GPU."""

    gpu: GpuId
    model: str
    stage: Stage
    plan_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStage:
    """Free a stage on a GPU; sent only once nothing runs there that needs it."""

    gpu: GpuId
    model: str
    stage: Stage
    plan_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartEngine:
    """An engine hangs: end its process, so that another takes its place."""

    gpu: GpuId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskNodes:
    """The placement policy wants this many machines in all."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNode:
    """A drained machine can be given back; it takes no work until a plan keeps it after all."""

    node: str
    reason: str


Command = (
    StartStage
    | Prefetch
    | Resize
    | Preempt
    | Abort
    | Release
    | Replicate
    | Complete
    | Fail
    | Cancelled
    | LoadStage
    | DropStage
    | RestartEngine
    | AskNodes
    | ReleaseNode
)
