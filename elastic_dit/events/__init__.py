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

from elastic_dit.events.commands import (
    Abort,
    AskNodes,
    Cancelled,
    Command,
    Complete,
    DropStage,
    Fail,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    ReleaseNode,
    Replicate,
    Resize,
    RestartEngine,
    StartStage,
)
from elastic_dit.events.observed import (
    ArtifactCopied,
    CancelRequested,
    EngineJoined,
    EngineLost,
    Event,
    GpusFreed,
    InputsLost,
    MembersLost,
    NodeLeaves,
    PlanPublished,
    RequestAccepted,
    ResizeRefused,
    ResultLost,
    SnapshotKept,
    StageAborted,
    StageDone,
    StageDropped,
    StageFailed,
    StageLoaded,
    StageLoadFailed,
    StagePreempted,
    StepDone,
    Tick,
)

__all__ = [
    "Abort",
    "ArtifactCopied",
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
    "NodeLeaves",
    "PlanPublished",
    "Preempt",
    "Prefetch",
    "Release",
    "ReleaseNode",
    "Replicate",
    "RequestAccepted",
    "Resize",
    "ResizeRefused",
    "RestartEngine",
    "ResultLost",
    "SnapshotKept",
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
