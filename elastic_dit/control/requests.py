"""Requests: one record each, the queues they wait in, and where their tensors lie."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sortedcontainers import SortedDict

from elastic_dit.control.groups import Group
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, GpuId, Phase, StageRecord

__all__ = ["Order", "RequestRecord", "RequestTable", "WaitQueue"]

Order = tuple[Any, ...]
"""Sort key of a waiting request: smaller goes first."""


@dataclass(slots=True, eq=False, kw_only=True)
class RequestRecord:
    """Everything the control plane knows of one request.

    Attributes
    ----------
    request : GenerationRequest
    sequence : int
        Its place in the order of acceptance.
    accepted_at : float
        Seconds on the control plane's clock, as all times here.
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
        State of a preempted DiT stage.
    records : list of StageRecord
        Its timeline so far.
    failures : list of Failure
        What went wrong, oldest first.
    blamed : int
        Failures while it ran: what `ControlConfig.max_attempts` counts.
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
    finished_at : float or None
        When it ended.
    result : ArtifactRef or None
        Its result, once completed.
    """

    request: GenerationRequest
    sequence: int
    accepted_at: float
    phase: Phase = Phase.QUEUED
    attempt: int = 1
    epoch: int = 0
    step: int = 0
    waiting_since: float = 0.0
    artifacts: dict[Stage, ArtifactRef] = field(default_factory=dict)
    snapshot: ArtifactRef | None = None
    records: list[StageRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    blamed: int = 0
    group: Group | None = None
    prepared: GpuId | None = None
    copies: tuple[ArtifactRef, ...] = ()
    avoid: set[GpuId] = field(default_factory=set)
    rank: Order = ()
    finished_at: float | None = None
    result: ArtifactRef | None = None
    _seen: set[ArtifactRef] = field(default_factory=set, repr=False)

    def __repr__(self) -> str:
        return (
            f"<RequestRecord {self.request_id} {self.phase} attempt {self.attempt}"
            f" epoch {self.epoch} step {self.step}/{self.request.num_inference_steps}>"
        )

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def stage(self) -> Stage:
        """The stage it waits for or runs; the decoder once it has ended."""
        return _STAGE_OF.get(self.phase, Stage.DECODER)

    @property
    def key(self) -> StageKey:
        """The stage of its model that it waits for or runs."""
        return StageKey(self.request.model, self.stage)

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
        if self.snapshot is not None:
            yield self.snapshot

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


_BEFORE = {Stage.DIT: Stage.ENCODER, Stage.DECODER: Stage.DIT}
_STAGE_OF = {Phase.waiting_for(stage): stage for stage in Stage} | {
    Phase.running(stage): stage for stage in Stage
}


class WaitQueue:
    """Requests that wait for one stage of one model, in the dispatch policy's order.

    Adding, removing and finding a position are O(log n).
    """

    def __init__(self, key: StageKey) -> None:
        self.key = key
        self._records: SortedDict[Order, RequestRecord] = SortedDict()
        self._unprepared: SortedDict[Order, RequestRecord] = SortedDict()

    def __repr__(self) -> str:
        return f"<WaitQueue {self.key.model}/{self.key.stage}: {len(self)}>"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._records.values())

    @property
    def head(self) -> RequestRecord | None:
        """The first in line."""
        return self._records.peekitem(0)[1] if self._records else None

    @property
    def next_unprepared(self) -> RequestRecord | None:
        """The first in line whose inputs no GPU was told to pull ahead."""
        return self._unprepared.peekitem(0)[1] if self._unprepared else None

    def position(self, record: RequestRecord) -> int:
        """Requests ahead of this one."""
        return int(self._records.bisect_left(record.rank))

    def add(self, record: RequestRecord) -> None:
        """Queue a request under its rank."""
        self._records[record.rank] = record
        self._unprepared[record.rank] = record

    def remove(self, record: RequestRecord) -> None:
        """Take a request out."""
        del self._records[record.rank]
        self._unprepared.pop(record.rank, None)

    def mark_prepared(self, record: RequestRecord, prepared: bool) -> None:
        """Note whether some GPU pulls its inputs ahead."""
        if prepared:
            self._unprepared.pop(record.rank, None)
        elif record.rank in self._records:
            self._unprepared[record.rank] = record


class RequestTable:
    """All requests: live ones in their queues, the last finished ones for those who ask.

    Parameters
    ----------
    finished_kept : int
        Finished records to keep.
    order : callable
        Sort key of a waiting request; the order of acceptance breaks ties.
    """

    def __init__(self, finished_kept: int, order: Callable[[RequestRecord], Order]) -> None:
        self._finished_kept = finished_kept
        self._order = order
        self._live: dict[str, RequestRecord] = {}
        self._finished: OrderedDict[str, RequestRecord] = OrderedDict()
        self._queues: dict[StageKey, WaitQueue] = {}
        self._by_stage: dict[Stage, list[WaitQueue]] = {stage: [] for stage in Stage}
        self._holders: dict[GpuId, dict[str, None]] = {}
        self._accepted = 0
        self._waiting = 0
        self.ended: dict[Phase, int] = dict.fromkeys(
            (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED), 0
        )

    def __repr__(self) -> str:
        return f"<RequestTable {len(self._live)} live, {self._waiting} waiting>"

    @property
    def live(self) -> Mapping[str, RequestRecord]:
        """Requests that have not ended, in order of acceptance."""
        return self._live

    @property
    def finished(self) -> Mapping[str, RequestRecord]:
        """Requests that ended lately, the oldest end first."""
        return self._finished

    @property
    def waiting(self) -> int:
        """Requests that wait for a GPU, over all stages."""
        return self._waiting

    @property
    def queues(self) -> Mapping[StageKey, WaitQueue]:
        """Every queue there ever was a request in."""
        return self._queues

    def queues_of(self, stage: Stage) -> Sequence[WaitQueue]:
        """The queues of a stage, one per model."""
        return self._by_stage[stage]

    def get(self, request_id: str) -> RequestRecord | None:
        """A live or lately finished request."""
        return self._live.get(request_id) or self._finished.get(request_id)

    def accept(self, request: GenerationRequest, now: float) -> RequestRecord:
        """Take a new request in; it waits for the encoder."""
        record = RequestRecord(request=request, sequence=self._accepted, accepted_at=now)
        self._accepted += 1
        self._live[record.request_id] = record
        self.wait_for(record, Stage.ENCODER, now)
        return record

    def wait_for(self, record: RequestRecord, stage: Stage, now: float) -> None:
        """Put a request in the queue of a stage."""
        record.phase = Phase.waiting_for(stage)
        record.waiting_since = now
        record.rank = (*self._order(record), record.sequence)
        key = record.key
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = WaitQueue(key)
            self._by_stage[stage].append(queue)
        queue.add(record)
        self._waiting += 1

    def stop_waiting(self, record: RequestRecord) -> None:
        """Take a request out of its queue."""
        self._queues[record.key].remove(record)
        self._waiting -= 1

    def finish(self, record: RequestRecord, phase: Phase, now: float) -> None:
        """A request that neither waits nor runs has ended."""
        record.phase = phase
        record.finished_at = now
        self.ended[phase] += 1
        del self._live[record.request_id]
        self._finished[record.request_id] = record
        if len(self._finished) > self._finished_kept:
            self._finished.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """Drop the record of a finished request, if there is one."""
        self._finished.pop(request_id, None)

    def reopen(self, record: RequestRecord) -> None:
        """A completed request lost its result and is live again."""
        del self._finished[record.request_id]
        self.ended[record.phase] -= 1
        record.phase = Phase.DECODING
        record.finished_at = record.result = None
        self._live[record.request_id] = record

    def keep_output(self, record: RequestRecord, artifact: ArtifactRef) -> None:
        """Note what a stage has made, for the next one."""
        record.artifacts[artifact.stage] = artifact
        self._holders.setdefault(artifact.gpu, {})[record.request_id] = None

    def keep_snapshot(self, record: RequestRecord, snapshot: ArtifactRef) -> list[ArtifactRef]:
        """Note the state of a preempted stage; the snapshot it replaces is returned."""
        old, record.snapshot = record.snapshot, snapshot
        self._holders.setdefault(snapshot.gpu, {})[record.request_id] = None
        return self._let_go(record, [old] if old and old != snapshot else [])

    def release_before(self, record: RequestRecord, stage: Stage) -> list[ArtifactRef]:
        """Forget what `stage` and those before it started from; it is returned."""
        order = tuple(Stage)
        done = [s for s in record.artifacts if order.index(s) < order.index(stage)]
        gone = [record.artifacts.pop(s) for s in done]
        if record.snapshot is not None:
            gone.append(record.snapshot)
            record.snapshot = None
        return self._let_go(record, gone)

    def drop_inputs(
        self, record: RequestRecord, inputs: tuple[ArtifactRef, ...]
    ) -> list[ArtifactRef]:
        """Forget inputs that proved useless, those of them that are still known; returned."""
        gone = [artifact for artifact in inputs if artifact in tuple(record.held())]
        for artifact in gone:
            if artifact == record.snapshot:
                record.snapshot = None
            else:
                del record.artifacts[artifact.stage]
        return self._let_go(record, gone)

    def held_on(self, gpu: GpuId) -> list[RequestRecord]:
        """Requests with tensors on a GPU."""
        return [self._live[request_id] for request_id in self._holders.get(gpu, ())]

    def lose(self, record: RequestRecord, gpu: GpuId) -> None:
        """What a request had on a GPU is gone."""
        for stage in [stage for stage, ref in record.artifacts.items() if ref.gpu == gpu]:
            del record.artifacts[stage]
        if record.snapshot is not None and record.snapshot.gpu == gpu:
            record.snapshot = None
        self._unhold(record, gpu)

    def prepare(self, record: RequestRecord, gpu: GpuId) -> None:
        """Note that a GPU pulls a waiting request's inputs ahead."""
        record.prepared = gpu
        record.copies = tuple(replace(ref, gpu=gpu) for ref in record.inputs if ref.gpu != gpu)
        self._queues[record.key].mark_prepared(record, True)

    def unprepare(self, record: RequestRecord) -> tuple[ArtifactRef, ...]:
        """Forget that a GPU pulls inputs ahead; its copies are returned."""
        copies, record.copies, record.prepared = record.copies, (), None
        if record.phase.is_waiting:
            self._queues[record.key].mark_prepared(record, False)
        return copies

    def _let_go(self, record: RequestRecord, gone: list[ArtifactRef]) -> list[ArtifactRef]:
        for gpu in {artifact.gpu for artifact in gone}:
            if all(artifact.gpu != gpu for artifact in record.held()):
                self._unhold(record, gpu)
        return gone

    def _unhold(self, record: RequestRecord, gpu: GpuId) -> None:
        holders = self._holders.get(gpu, {})
        holders.pop(record.request_id, None)
        if not holders:
            self._holders.pop(gpu, None)
