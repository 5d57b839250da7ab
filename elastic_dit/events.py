"""What happens to the control plane, and what it tells its shell to do.

`elastic_dit.control.Controller` is a pure function of these: ``handle(event, now) -> commands``.
A shell (the Dask plug-in, or the simulator) turns what it observes into events and carries the
commands out. Two numbers fence every message about a request:

``attempt``
    Rises whenever the request starts a stage again after a failure.
``epoch``
    Rises whenever the group of GPUs that runs it changes.

What comes from an older pair is dropped, never obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import ArtifactRef, Failure, GpuId, PlacementPlan, StageRecord

__all__ = [
    "Abort",
    "AskNodes",
    "CancelRequested",
    "Cancelled",
    "Command",
    "Complete",
    "DropStage",
    "EngineJoined",
    "EngineLost",
    "Event",
    "Fail",
    "GpusFreed",
    "InputsLost",
    "LoadStage",
    "MembersLost",
    "PlanPublished",
    "Preempt",
    "Prefetch",
    "Release",
    "ReleaseNode",
    "RequestAccepted",
    "Resize",
    "ResizeRefused",
    "RestartEngine",
    "ResultLost",
    "StageAborted",
    "StageDone",
    "StageDropped",
    "StageFailed",
    "StageLoadFailed",
    "StageLoaded",
    "StagePreempted",
    "StartStage",
    "StepDone",
    "Tick",
]


# ------------------------------------------------------------------------------------ events
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAccepted:
    """A validated request entered the system and must end exactly once.

    `dops` are the degrees of parallelism at which its engines can run it, rising; empty where
    nothing limits them but what the cost model says.
    """

    request: GenerationRequest
    dops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The client, or its disappearance, asks to stop a request in whatever phase it is."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJoined:
    """A GPU is ready to load stages.

    `gpu` numbers are given by the shell so that GPUs of one `node` are neighbours; `resident`
    is what the engine already holds (it may have outlived a control plane).
    """

    gpu: GpuId
    name: str
    node: str
    kind: str
    memory_bytes: int
    resident: frozenset[tuple[str, Stage]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLost:
    """A GPU's process died, left or was declared hung."""

    gpu: GpuId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoaded:
    """Weights of one stage are resident and ready; seconds is what the load took."""

    gpu: GpuId
    model: str
    stage: Stage
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDropped:
    """Weights of one stage were freed."""

    gpu: GpuId
    model: str
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoadFailed:
    """A stage could not be loaded (corrupt weights, no memory)."""

    gpu: GpuId
    model: str
    stage: Stage
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """`step` denoising steps of the request are done on its present group."""

    request_id: str
    attempt: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusFreed:
    """Some GPUs of a running group left it and are free (DDiT §4.3: all but the master)."""

    request_id: str
    attempt: int
    epoch: int
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLost:
    """Members of a group hang or died, as the others found: they went on without them.

    `gpus` is what they lost. Their engines can no longer be trusted and are made anew.
    """

    request_id: str
    attempt: int
    epoch: int
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRefused:
    """A `Resize`, whose epoch this carries, will not be done; the group goes on as it is."""

    request_id: str
    attempt: int
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDone:
    """A stage ran to its end; its group is free and its output lies at ``output.gpu``."""

    request_id: str
    attempt: int
    epoch: int
    stage: Stage
    output: ArtifactRef
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailed:
    """A stage raised; its group is free."""

    request_id: str
    attempt: int
    epoch: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAborted:
    """A stage stopped because of `Abort`; its group is free and holds nothing of the request."""

    request_id: str
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePreempted:
    """A stage stopped because of `Preempt`; its group is free, `snapshot` resumes it."""

    request_id: str
    attempt: int
    epoch: int
    snapshot: ArtifactRef


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsLost:
    """The inputs of a started stage could not be pulled: go one stage back. The group is free."""

    request_id: str
    attempt: int
    epoch: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLost:
    """A completed request's result vanished before its client had it: make it again."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPublished:
    """A new placement plan is in force, unless its epoch is old."""

    plan: PlacementPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went by: look at deadlines and delays."""


Event = (
    RequestAccepted
    | CancelRequested
    | EngineJoined
    | EngineLost
    | StageLoaded
    | StageDropped
    | StageLoadFailed
    | StepDone
    | GpusFreed
    | MembersLost
    | ResizeRefused
    | StageDone
    | StageFailed
    | StageAborted
    | StagePreempted
    | InputsLost
    | ResultLost
    | PlanPublished
    | Tick
)


# ---------------------------------------------------------------------------------- commands
@dataclass(frozen=True, slots=True, kw_only=True)
class StartStage:
    """Run a stage on a group; the master (lowest GPU id) comes first in `gpus`.

    `inputs` are pulled by the group from where they lie. For a DiT stage they may hold a
    snapshot (``step > 0``), from which it goes on.
    """

    request: GenerationRequest
    attempt: int
    epoch: int
    stage: Stage
    gpus: tuple[GpuId, ...]
    inputs: tuple[ArtifactRef, ...]
    reason: str


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

    Where that is not the producer, it is a copy made by `Prefetch` that will not be used there.
    """

    artifact: ArtifactRef


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
    """A drained machine can be given back."""

    node: str
    reason: str


Command = (
    StartStage
    | Prefetch
    | Resize
    | Preempt
    | Abort
    | Release
    | Complete
    | Fail
    | Cancelled
    | LoadStage
    | DropStage
    | RestartEngine
    | AskNodes
    | ReleaseNode
)
