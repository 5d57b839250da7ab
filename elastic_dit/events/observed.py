"""What happens to the control plane."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import ArtifactRef, Failure, GpuId, PlacementPlan

__all__ = [
    "ArtifactCopied",
    "CancelRequested",
    "EngineJoined",
    "EngineLost",
    "Event",
    "GpusFreed",
    "InputsLost",
    "MembersLost",
    "NodeLeaves",
    "PlanPublished",
    "RequestAccepted",
    "ResizeRefused",
    "ResultLost",
    "SnapshotKept",
    "StageAborted",
    "StageDone",
    "StageDropped",
    "StageFailed",
    "StageLoadFailed",
    "StageLoaded",
    "StagePreempted",
    "StepDone",
    "Tick",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAccepted:
    """A validated request entered the system and must end exactly once.

    `dops` are the degrees of parallelism at which its engines can run it, rising; empty where
    nothing limits them but what the cost model says. `owner` is whom the limit per client counts
    it for. One that an earlier life of the control plane accepted comes `age_s` seconds later, as
    another `attempt`.
    """

    request: GenerationRequest
    dops: tuple[int, ...] = ()
    owner: str = ""
    attempt: int = 1
    age_s: float = 0.0


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
    """A GPU's process died, left or was declared hung.

    `expected` where it left in good order: then no request can be the cause.
    """

    gpu: GpuId
    reason: str
    expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoaded:
    """Weights of one stage are resident and ready; seconds is what the load took.

    `nbytes` is the memory that they take on the GPU, 0 where that is not known.
    """

    gpu: GpuId
    model: str
    stage: Stage
    seconds: float
    nbytes: int = 0


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
    """A stage ran to its end; its group is free and its output lies at ``output.gpu``.

    `pulls` tells of each input that came from another engine which stage had made it, and how
    many seconds it took to arrive, retries included and even where it came ahead of its turn.
    """

    request_id: str
    attempt: int
    epoch: int
    stage: Stage
    output: ArtifactRef
    seconds: float
    pulls: tuple[tuple[Stage, float], ...] = ()


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
class SnapshotKept:
    """A denoising group goes on, and its master keeps a snapshot from which it can be resumed."""

    request_id: str
    attempt: int
    epoch: int
    snapshot: ArtifactRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCopied:
    """What became of a `Replicate`: `copy` lies at its GPU, unless `failure` says why not."""

    copy: ArtifactRef
    failure: str = ""


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
class NodeLeaves:
    """A drained machine is being closed now: no plan can keep it any more."""

    node: str


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
    | SnapshotKept
    | ArtifactCopied
    | InputsLost
    | ResultLost
    | PlanPublished
    | NodeLeaves
    | Tick
)
