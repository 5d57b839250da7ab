"""What virtual engines are and do at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elastic_dit.events import DropStage, LoadStage, Resize, StartStage
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["Run", "VirtualEngine"]


@dataclass(slots=True, eq=False, kw_only=True)
class VirtualEngine:
    """One GPU's engine.

    Attributes
    ----------
    gpu : int
    node, kind : str
    joined_at : float
    resident : set of StageKey
    artifacts : set of ArtifactRef
        Outputs and snapshots that lie here.
    pulled : dict of ArtifactRef to float
        Prefetched inputs, and when they are here.
    orders : list
        Loads and drops that wait for the engine's thread; the first is under way.
    run : Run or None
        The group it works in.
    """

    gpu: GpuId
    node: str
    kind: str
    joined_at: float
    resident: set[StageKey] = field(default_factory=set)
    artifacts: set[ArtifactRef] = field(default_factory=set)
    pulled: dict[ArtifactRef, float] = field(default_factory=dict)
    orders: list[LoadStage | DropStage] = field(default_factory=list)
    run: Run | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """One stage of one request at work on a group.

    Attributes
    ----------
    start : StartStage
    key : tuple of (str, int)
        Request and attempt: at most one run has them.
    stage : Stage
        What it runs.
    total_steps : int
        Denoising steps of the request.
    epoch : int
        That of the group at work.
    gpus : tuple of int
    since : float
        When this group began.
    began_at : float
        When the stage began.
    step : int
        Denoising steps done.
    step_s : float
        Seconds of one step of the present group.
    timer : int
        Number of the next thing that will happen to it; what was scheduled earlier is void.
    resize : Resize or None
        Ordered, to be done at the next boundary.
    joining : set of int
        GPUs that have been told to join and have not yet.
    preempt, abort : bool
        Likewise.
    stalled : bool
        A member died: nothing happens until the controller says how to go on.
    """

    start: StartStage
    epoch: int
    gpus: tuple[GpuId, ...]
    since: float
    began_at: float
    step: int = 0
    step_s: float = 0.0
    timer: int = 0
    resize: Resize | None = None
    joining: set[GpuId] = field(default_factory=set)
    preempt: bool = False
    abort: bool = False
    stalled: bool = False
    key: tuple[str, int] = field(init=False)
    stage: Stage = field(init=False)
    total_steps: int = field(init=False)

    def __post_init__(self) -> None:
        request = self.start.request
        self.key = (request.request_id, self.start.attempt)
        self.stage = self.start.stage
        self.total_steps = request.num_inference_steps

    @property
    def fence(self) -> dict[str, Any]:
        """Fields of every message it sends."""
        return {
            "request_id": self.start.request.request_id,
            "attempt": self.start.attempt,
            "epoch": self.epoch,
        }
