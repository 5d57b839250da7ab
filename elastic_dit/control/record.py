"""Everything the control plane knows of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from elastic_dit.control.groups import Group
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, GpuId, Phase, StageRecord

__all__ = ["Order", "RequestRecord"]

Order = tuple[Any, ...]
"""Sort key of a waiting request: smaller goes first."""


@dataclass(slots=True, eq=False, kw_only=True)
class RequestRecord:
    """Everything the control plane knows of one request.

    Attributes
    ----------
    request : GenerationRequest
    owner : str
        On whose behalf it runs.
    sequence : int
        Its place in the order of acceptance.
    accepted_at : float
        Seconds on the control plane's clock, as all times here.
    dops : tuple of int
        Degrees of parallelism at which its engines can run it; empty for no limit.
    phase : Phase
    attempt, epoch : int
        Fencing numbers of the newest command about it.
    step : int
        Denoising steps done and kept.
    waiting_since : float
        When its present wait began.
    artifacts : dict of Stage to ArtifactRef
        Stage outputs that are still needed, by the stage that made them.
    snapshot : ArtifactRef or None
        Newest state of its DiT stage from which that can go on.
    backup : ArtifactRef or None
        Another one, on another GPU: a copy, or what was newest before.
    copying : ArtifactRef or None
        A copy that a GPU has been told to pull and not told of yet.
    records : list of StageRecord
        Its timeline so far.
    failures : list of Failure
        What went wrong, oldest first.
    blamed : int
        Failures that it may have caused: what `ControlConfig.max_attempts` counts.
    group : Group or None
        GPUs at work on it.
    prepared : int or None
        GPU that was told to pull its inputs ahead.
    copies : tuple of ArtifactRef
        What lies there because of it.
    avoid : set of int
        GPUs it failed on.
    rank : tuple
        Its key in the queue it waits in.
    weight : float
        What the policy weighs it, while it waits.
    held_until : float or None
        While it waits outside of its queue for a retry: until when.
    finished_at : float or None
        When it ended.
    result : ArtifactRef or None
        Its result, once completed.
    result_left : bool
        Whether the engine that made the result has left in good order since.
    request_id : str
        The request's id.
    """

    request: GenerationRequest
    sequence: int
    accepted_at: float
    dops: tuple[int, ...] = ()
    owner: str = ""
    phase: Phase = Phase.QUEUED
    attempt: int = 1
    epoch: int = 0
    step: int = 0
    waiting_since: float = 0.0
    artifacts: dict[Stage, ArtifactRef] = field(default_factory=dict)
    snapshot: ArtifactRef | None = None
    backup: ArtifactRef | None = None
    copying: ArtifactRef | None = None
    records: list[StageRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    blamed: int = 0
    group: Group | None = None
    prepared: GpuId | None = None
    copies: tuple[ArtifactRef, ...] = ()
    avoid: set[GpuId] = field(default_factory=set)
    rank: Order = ()
    weight: float = 0.0
    held_until: float | None = None
    finished_at: float | None = None
    result: ArtifactRef | None = None
    result_left: bool = False
    request_id: str = field(init=False)
    _seen: set[ArtifactRef] = field(default_factory=set, repr=False)
    _keys: Mapping[Phase, StageKey] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self._keys = _keys_of(self.request.model)

    def __repr__(self) -> str:
        return (
            f"<RequestRecord {self.request_id} {self.phase} attempt {self.attempt}"
            f" epoch {self.epoch} step {self.step}/{self.request.num_inference_steps}>"
        )

    @property
    def in_line(self) -> bool:
        """Whether it waits in a queue, so that a GPU would bring it forward."""
        return self.phase.is_waiting and self.held_until is None

    @property
    def stage(self) -> Stage:
        """The stage it waits for or runs; the decoder once it has ended."""
        return _STAGE_OF.get(self.phase, Stage.DECODER)

    @property
    def key(self) -> StageKey:
        """The stage of its model that it waits for or runs."""
        return self._keys[self.phase]

    @property
    def inputs(self) -> tuple[ArtifactRef, ...]:
        """What the stage it waits for or runs starts from; empty for the encoder."""
        return self.inputs_of(self.stage)

    @property
    def steps_left(self) -> int:
        """Denoising steps to do."""
        if self.stage is Stage.DECODER:
            return 0
        return self.request.num_inference_steps - self.step

    def inputs_of(self, stage: Stage) -> tuple[ArtifactRef, ...]:
        """What there is for `stage` to start from."""
        if stage is Stage.DIT and self.snapshot is not None:
            return (self.snapshot,)
        source = _BEFORE.get(stage)
        found = self.artifacts.get(source) if source else None
        return (found,) if found else ()

    def held(self) -> Iterator[ArtifactRef]:
        """Tensors that lie somewhere for this request."""
        yield from self.artifacts.values()
        for snapshot in (self.snapshot, self.backup, self.copying):
            if snapshot is not None:
                yield snapshot

    def first_sight(self, artifact: ArtifactRef) -> bool:
        """Whether an artifact is heard of for the first time; remembers it."""
        if artifact in self._seen:
            return False
        self._seen.add(artifact)
        return True

    def runnable_stage(self) -> Stage:
        """The latest stage not past the present one whose inputs are there."""
        stage = self.stage
        while stage is not Stage.ENCODER and not self.inputs_of(stage):
            stage = _BEFORE[stage]
        return stage


@lru_cache
def _keys_of(model: str) -> Mapping[Phase, StageKey]:
    """A model's stages by the phase of a request: asked for with every event."""
    return {phase: StageKey(model, _STAGE_OF.get(phase, Stage.DECODER)) for phase in Phase}


_BEFORE = {Stage.DIT: Stage.ENCODER, Stage.DECODER: Stage.DIT}
_STAGE_OF = {Phase.waiting_for(stage): stage for stage in Stage} | {
    Phase.running(stage): stage for stage in Stage
}
