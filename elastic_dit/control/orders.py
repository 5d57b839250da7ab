"""Orders: what the control plane tells engines to do about a request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group, GroupState, GroupTable
from elastic_dit.control.meter import Meter
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.events import Abort, Command, Preempt, Prefetch, Release, Resize, StartStage
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import ArtifactRef, GpuId, Phase

__all__ = ["Orders"]

_ENDING_STEPS = 2
"""A denoising stage with at most this many steps to go is about to end: time enough to pull the
next request's inputs, late enough that what comes next is mostly certain."""


class Orders:
    """Gives orders, and notes in the tables what they change.

    Parameters
    ----------
    table, pool, groups, log, meter
        The controller's parts.
    emit : callable
        Takes the commands.
    """

    def __init__(
        self,
        table: RequestTable,
        pool: GpuPool,
        groups: GroupTable,
        log: DecisionLog,
        meter: Meter,
        emit: Callable[[Command], None],
    ) -> None:
        self._meter = meter
        self._table = table
        self._pool = pool
        self._groups = groups
        self._log = log
        self._emit = emit
        self.changed: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<Orders to {self._pool!r}>"

    def start(
        self, record: RequestRecord, gpus: tuple[GpuId, ...], reason: str, now: float
    ) -> None:
        """Start the stage a request waits for."""
        key, inputs = record.key, record.inputs
        self._meter.started(key, now - record.waiting_since, now)
        self._table.stop_waiting(record)
        record.phase = Phase.running(key.stage)
        self.unprepare(record, used_on=gpus)
        record.epoch = self._groups.next_epoch()
        record.group = Group(
            request_id=record.request_id,
            attempt=record.attempt,
            epoch=record.epoch,
            key=key,
            gpus=gpus,
            started_at=now,
            total_steps=record.request.num_inference_steps,
            step=record.step,
            inputs=inputs,
        )
        self._groups.open(record.group)
        self.mark_ending(record.group)
        self._emit(
            StartStage(
                request=_as_needed(record.request, key.stage),
                attempt=record.attempt,
                epoch=record.epoch,
                stage=key.stage,
                gpus=gpus,
                inputs=inputs,
                reason=reason,
                tiled=key.stage is Stage.DECODER and _was_too_large(record),
            )
        )
        self.note(now, "start", record, gpus, f"{key.stage}: {reason}")

    def resize(
        self,
        record: RequestRecord,
        gpus: tuple[GpuId, ...],
        reason: str,
        now: float,
        lost: tuple[GpuId, ...] = (),
    ) -> None:
        """Order another group for a running DiT stage."""
        assert record.group is not None, record
        present, since = tuple(sorted(record.group.held)), record.group.first_epoch
        record.epoch = self._groups.next_epoch()
        self._groups.retarget(record.group, gpus, record.epoch, now)
        self._emit(
            Resize(
                request_id=record.request_id,
                attempt=record.attempt,
                epoch=record.epoch,
                gpus=gpus,
                reason=reason,
                since=since,
                present=present,
                lost=lost,
                request=record.request.without_image_data(),
            )
        )
        self.note(now, "resize", record, gpus, reason)

    def preempt(self, record: RequestRecord, reason: str, now: float) -> None:
        """Order a running DiT stage to stop and keep a snapshot."""
        group = record.group
        assert group is not None, record
        group.state = GroupState.PREEMPTING
        self._groups.touch(group)
        self._emit(
            Preempt(
                request_id=record.request_id,
                attempt=record.attempt,
                epoch=group.epoch,
                gpus=group.gpus,
                reason=reason,
            )
        )
        self.note(now, "preempt", record, group.gpus, reason)

    def prefetch(self, record: RequestRecord, gpu: GpuId, reason: str, now: float) -> None:
        """Order a GPU to pull a waiting request's inputs, unless they lie there already."""
        self._table.prepare(record, gpu)
        holder = self._pool[gpu]
        holder.prepared[record.request_id] = None
        self._pool.refresh(holder)
        inputs = tuple(ref for ref in record.inputs if ref.gpu != gpu)
        if inputs:
            self._emit(
                Prefetch(
                    request_id=record.request_id,
                    attempt=record.attempt,
                    stage=record.stage,
                    gpu=gpu,
                    inputs=inputs,
                )
            )
            self.note(now, "prefetch", record, (gpu,), reason)

    def abort(self, group: Group, reason: str, now: float) -> None:
        """Order a group to stop; its GPUs are busy until it says that it has."""
        self._groups.wind_down(group)
        gpus = tuple(sorted(group.held))
        self._emit(
            Abort(
                request_id=group.request_id,
                attempt=group.attempt,
                epoch=group.newest_epoch,
                gpus=gpus,
                reason=reason,
            )
        )
        self._log.add(now, "abort", group.request_id, gpus, reason)

    def unprepare(self, record: RequestRecord, used_on: Collection[GpuId] = ()) -> None:
        """Forget a prefetch; copies on another GPU than those that use it are let go."""
        gpu = record.prepared
        if gpu is None:
            return
        copies = self._table.unprepare(record)
        holder = self._pool.get(gpu)
        if holder is not None:
            holder.prepared.pop(record.request_id, None)
            self._pool.refresh(holder)
        if gpu not in used_on:
            self.release(copies)

    def release(self, artifacts: Iterable[ArtifactRef]) -> None:
        """Tell the holders that are alive to let go."""
        for artifact in artifacts:
            if artifact.gpu in self._pool:
                self._emit(Release(artifact=artifact))

    def mark_ending(self, group: Group) -> bool:
        """Let a group's GPUs pull ahead once their work is about to end; True when it begins."""
        if group.stage is not Stage.DIT or group.total_steps - group.step > _ENDING_STEPS:
            return False
        begins = False
        for gpu in group.held:
            begins |= self._pool.set_ending(gpu)
        return begins

    def note(
        self, now: float, what: str, record: RequestRecord, gpus: tuple[GpuId, ...], reason: str
    ) -> None:
        """Log a decision about a request."""
        self.changed[record.request_id] = None
        self._log.add(now, what, record.request_id, gpus, reason)


def _was_too_large(record: RequestRecord) -> bool:
    """Whether a decode of it ran out of memory."""
    return any(f.stage is Stage.DECODER and f.is_out_of_memory for f in record.failures)


def _as_needed(request: GenerationRequest, stage: Stage) -> GenerationRequest:
    """Only the encoder looks at a picture; others get its mention."""
    return request if stage is Stage.ENCODER else request.without_image_data()
