"""The request table: who is live, who waits where, and where their tensors lie."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

from elastic_dit.control.pictures import PictureShelf
from elastic_dit.control.queue import WaitQueue
from elastic_dit.control.record import Order, RequestRecord
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, GpuId, Phase

__all__ = ["RequestRecord", "RequestTable", "WaitQueue"]


_ORDER = {stage: place for place, stage in enumerate(Stage)}


class RequestTable:
    """All requests: live ones in their queues, the last finished ones for those who ask.

    Parameters
    ----------
    finished_kept : int
        Finished records to keep.
    order : callable
        Sort key of a waiting request; the order of acceptance breaks ties.
    weigh : callable, optional
        What a waiting request adds to the weight of its queue.
    max_image_bytes : int
        Bytes of input pictures to keep.

    Attributes
    ----------
    live : mapping of str to RequestRecord
        Requests that have not ended, in order of acceptance.
    queues : mapping of StageKey to WaitQueue
        Every queue there ever was a request in.
    lines : mapping of Stage to list of (StageKey, WaitQueue)
        The same by stage, one per model.
    pictures : PictureShelf
    version : int
        Grows whenever a request joins or leaves a queue or ends.
    """

    def __init__(
        self,
        finished_kept: int,
        order: Callable[[RequestRecord], Order],
        weigh: Callable[[RequestRecord], float] | None = None,
        max_image_bytes: int = 0,
    ) -> None:
        self._finished_kept = finished_kept
        self.pictures = PictureShelf(max_image_bytes)
        self._order = order
        self._weigh = weigh
        self._live: dict[str, RequestRecord] = {}
        self.live: Mapping[str, RequestRecord] = self._live
        self._finished: OrderedDict[str, RequestRecord] = OrderedDict()
        self._queues: dict[StageKey, WaitQueue] = {}
        self.queues: Mapping[StageKey, WaitQueue] = self._queues
        self._held: list[tuple[float, int, RequestRecord]] = []
        self.lines: Mapping[Stage, list[tuple[StageKey, WaitQueue]]] = {
            stage: [] for stage in Stage
        }
        self._holders: dict[GpuId, dict[str, None]] = {}
        self._accepted = 0
        self._owned: Counter[str] = Counter()
        self._waiting = 0
        self.version = 0
        self.ended: dict[Phase, int] = dict.fromkeys(
            (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED), 0
        )

    def __repr__(self) -> str:
        return f"<RequestTable {len(self._live)} live, {self._waiting} waiting>"

    @property
    def finished(self) -> Mapping[str, RequestRecord]:
        """Requests that ended lately, the oldest end first."""
        return self._finished

    @property
    def waiting(self) -> int:
        """Requests that wait for a GPU, over all stages."""
        return self._waiting

    def live_of(self, owner: str) -> int:
        """Requests of an owner that have not ended."""
        return self._owned[owner]

    def get(self, request_id: str) -> RequestRecord | None:
        """A live or lately finished request."""
        return self._live.get(request_id) or self._finished.get(request_id)

    def accept(
        self,
        request: GenerationRequest,
        now: float,
        dops: tuple[int, ...] = (),
        owner: str = "",
        attempt: int = 1,
        age_s: float = 0.0,
    ) -> RequestRecord:
        """Take a new request in; it waits for the encoder."""
        record = RequestRecord(
            request=request,
            sequence=self._accepted,
            accepted_at=now - age_s,
            dops=dops,
            owner=owner,
            attempt=attempt,
        )
        self._accepted += 1
        self._owned[owner] += 1
        self._live[record.request_id] = record
        self.pictures.accept(record)
        self.wait_for(record, Stage.ENCODER, now)
        return record

    def wait_for(
        self, record: RequestRecord, stage: Stage, now: float, after_s: float = 0.0
    ) -> None:
        """Put a request in the queue of a stage, after some time if need be."""
        record.phase = Phase.waiting_for(stage)
        record.waiting_since = now
        record.rank = (*self._order(record), record.sequence)
        record.weight = self._weigh(record) if self._weigh is not None else 0.0
        self._waiting += 1
        if after_s > 0:
            record.held_until = now + after_s
            heapq.heappush(self._held, (record.held_until, record.sequence, record))
        else:
            self._enqueue(record)

    def end_holds(self, now: float) -> bool:
        """Queue those whose time has come; whether there were any."""
        any_due = False
        while self._held and self._held[0][0] <= now:
            until, _, record = heapq.heappop(self._held)
            if record.held_until == until:
                record.held_until = None
                self._enqueue(record)
                any_due = True
        return any_due

    def _enqueue(self, record: RequestRecord) -> None:
        self.version += 1
        key = record.key
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = WaitQueue(key)
            self.lines[key.stage].append((key, queue))
        queue.add(record)

    def stop_waiting(self, record: RequestRecord) -> None:
        """Take a request out of its queue."""
        self.version += 1
        if record.held_until is None:
            self._queues[record.key].remove(record)
        record.held_until = None
        self._waiting -= 1

    def finish(self, record: RequestRecord, phase: Phase, now: float) -> None:
        """A request that neither waits nor runs has ended."""
        self.version += 1
        record.phase = phase
        record.finished_at = now
        self.ended[phase] += 1
        self._disown(record)
        del self._live[record.request_id]
        self._finished[record.request_id] = record
        self.pictures.end(record, phase)
        if len(self._finished) > self._finished_kept:
            self.forget(next(iter(self._finished)))

    def forget(self, request_id: str) -> None:
        """Drop the record of a finished request, if there is one."""
        self._finished.pop(request_id, None)
        self.pictures.forget(request_id)

    def results_leave(self, gpu: GpuId) -> None:
        """The engine that made some results leaves in good order, and may take them along."""
        for record in self._finished.values():
            if record.result is not None and record.result.gpu == gpu:
                record.result_left = True

    def reopen(self, record: RequestRecord) -> None:
        """A completed request lost its result and is live again."""
        del self._finished[record.request_id]
        self.ended[record.phase] -= 1
        record.phase = Phase.DECODING
        record.finished_at = record.result = None
        record.result_left = False
        self._owned[record.owner] += 1
        self._live[record.request_id] = record
        self.pictures.reopen(record)

    def keep_output(self, record: RequestRecord, artifact: ArtifactRef) -> None:
        """Note what a stage has made, for the next one."""
        record.artifacts[artifact.stage] = artifact
        self._holders.setdefault(artifact.gpu, {})[record.request_id] = None

    def keep_snapshot(self, record: RequestRecord, snapshot: ArtifactRef) -> list[ArtifactRef]:
        """Note a newer state of a DiT stage; the snapshot it replaces is returned.

        One on another GPU is kept as well while that is the only other one.
        """
        old, record.snapshot = record.snapshot, snapshot
        self._holders.setdefault(snapshot.gpu, {})[record.request_id] = None
        if old is None or old == snapshot:
            return []
        if record.backup is None and old.gpu != snapshot.gpu:
            record.backup = old
            return []
        return self._let_go(record, [old])

    def expect_copy(self, record: RequestRecord, copy: ArtifactRef) -> None:
        """Note that a GPU pulls a copy of the newest snapshot."""
        record.copying = copy
        self._holders.setdefault(copy.gpu, {})[record.request_id] = None

    def drop_copy(self, record: RequestRecord) -> list[ArtifactRef]:
        """Expect a copy no more; it is returned."""
        copy, record.copying = record.copying, None
        return self._let_go(record, [copy] if copy else [])

    def keep_copy(self, record: RequestRecord) -> list[ArtifactRef]:
        """The copy is there; the one that it replaces is returned."""
        copy, record.copying = record.copying, None
        assert copy is not None, record
        if record.snapshot is None:
            record.snapshot = copy
            return []
        old, record.backup = record.backup, copy
        return self._let_go(record, [old] if old else [])

    def count_on(self, gpu: GpuId) -> int:
        """Requests with tensors on a GPU: how many there are."""
        return len(self._holders.get(gpu, ()))

    def release_before(self, record: RequestRecord, stage: Stage) -> list[ArtifactRef]:
        """Forget what `stage` and those before it started from; it is returned."""
        done = [s for s in record.artifacts if _ORDER[s] < _ORDER[stage]]
        gone = [record.artifacts.pop(s) for s in done]
        gone += [s for s in (record.snapshot, record.backup, record.copying) if s is not None]
        record.snapshot = record.backup = record.copying = None
        return self._let_go(record, gone)

    def drop_inputs(
        self, record: RequestRecord, inputs: tuple[ArtifactRef, ...]
    ) -> list[ArtifactRef]:
        """Forget inputs that proved useless, those of them that are still known; returned."""
        gone = [artifact for artifact in inputs if artifact in tuple(record.held())]
        for artifact in gone:
            if artifact == record.snapshot:
                record.snapshot, record.backup = record.backup, None
            elif artifact == record.backup:
                record.backup = None
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
        if record.copying is not None and record.copying.gpu == gpu:
            record.copying = None
        if record.backup is not None and record.backup.gpu == gpu:
            record.backup = None
        if record.snapshot is not None and record.snapshot.gpu == gpu:
            record.snapshot, record.backup = record.backup, None
        self._unhold(record, gpu)

    def prepare(self, record: RequestRecord, gpu: GpuId) -> None:
        """Note that a GPU pulls a waiting request's inputs ahead."""
        record.prepared = gpu
        pulled = (replace(ref, gpu=gpu) for ref in record.inputs if ref.gpu != gpu)
        record.copies = tuple(copy for copy in pulled if copy not in tuple(record.held()))
        self._queues[record.key].mark_prepared(record, True)

    def unprepare(self, record: RequestRecord) -> tuple[ArtifactRef, ...]:
        """Forget that a GPU pulls inputs ahead; its copies are returned."""
        copies, record.copies, record.prepared = record.copies, (), None
        if record.phase.is_waiting:
            self._queues[record.key].mark_prepared(record, False)
        return copies

    def _disown(self, record: RequestRecord) -> None:
        self._owned[record.owner] -= 1
        if not self._owned[record.owner]:
            del self._owned[record.owner]

    def _let_go(self, record: RequestRecord, gone: list[ArtifactRef]) -> list[ArtifactRef]:
        if gone:
            kept_on = {artifact.gpu for artifact in record.held()}
            for gpu in {artifact.gpu for artifact in gone} - kept_on:
                self._unhold(record, gpu)
        return gone

    def _unhold(self, record: RequestRecord, gpu: GpuId) -> None:
        holders = self._holders.get(gpu, {})
        holders.pop(record.request_id, None)
        if not holders:
            self._holders.pop(gpu, None)
