"""What groups at work report, and which of it still counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastic_dit import events
from elastic_dit.control.groups import Group, GroupState, GroupTable
from elastic_dit.control.lifecycle import Lifecycle
from elastic_dit.control.orders import Orders
from elastic_dit.control.record import RequestRecord
from elastic_dit.control.times import AllowedTimes
from elastic_dit.request import Stage
from elastic_dit.state import Failure

__all__ = ["GroupReports"]

_Handler = Callable[[Any, float], bool]


class GroupReports:
    """Handles the fenced events; each handler says whether there is something to decide anew.

    Parameters
    ----------
    groups, life, orders, times
        The controller's parts.
    watches_steps : bool
        Whether the dispatch policy wants to be asked after every denoising step.

    Attributes
    ----------
    handlers : mapping of type to callable
        By event.
    """

    def __init__(
        self,
        groups: GroupTable,
        life: Lifecycle,
        orders: Orders,
        times: AllowedTimes,
        watches_steps: bool,
    ) -> None:
        self._groups = groups
        self._life = life
        self._orders = orders
        self._times = times
        self._watches_steps = watches_steps
        self.handlers: Mapping[type, _Handler] = {
            events.StepDone: self._step_done,
            events.GpusFreed: self._gpus_freed,
            events.ResizeRefused: self._resize_refused,
            events.StageDone: self._stage_done,
            events.StageFailed: self._stage_failed,
            events.StageAborted: self._stage_aborted,
            events.StagePreempted: self._stage_preempted,
            events.SnapshotKept: self._snapshot_kept,
            events.ArtifactCopied: self._artifact_copied,
            events.InputsLost: self._inputs_lost,
        }

    def __repr__(self) -> str:
        return f"<GroupReports of {self._groups!r}>"

    def _live_group(self, event: Any, now: float) -> tuple[Group | None, RequestRecord | None]:
        """The group that sent a message, and the request it works for.

        (None, None) for a stale message; (group, None) for a group that only winds down.
        """
        group = self._groups.find(event.request_id, event.attempt, event.epoch)
        if group is None:
            return None, None
        record = self._life.owner(group)
        if record is not None and event.epoch != group.epoch:
            self._life.note_epoch(group, event.epoch, now)
        return group, record

    def _step_done(self, event: events.StepDone, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None:
            return False
        changed, learns = group.segment_at == now, self._times.learns
        known = self._times.shapes if learns else 0
        if not self._life.step_done(record, group, event.step, now):
            return changed
        if learns and self._times.shapes != known:
            # What a policy could not know of this group before, it may act upon now.
            self._groups.touch(group)
            changed = True
        return self._orders.mark_ending(group) or changed or self._watches_steps

    def _gpus_freed(self, event: events.GpusFreed, now: float) -> bool:
        group, _ = self._live_group(event, now)
        if group is None:
            return False
        self._life.free_members(group, event.gpus, now)
        return True

    def _resize_refused(self, event: events.ResizeRefused, now: float) -> bool:
        group = self._groups.find(event.request_id, event.attempt, event.epoch)
        unmet = group is not None and group.target_epoch == event.epoch != group.epoch
        if group is None or not unmet or group.state is not GroupState.RESIZING:
            return False
        self._life.resize_refused(group, event.reason, now)
        return True

    def _stage_done(self, event: events.StageDone, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None or event.stage is not group.stage:
            self._life.discard(event.output)
            return self._wound_down(group, record, now)
        if group.stage is Stage.DIT:
            self._life.step_done(record, group, group.total_steps, now)
        self._life.stage_done(record, group, event.output, event.seconds, now)
        return True

    def _stage_preempted(self, event: events.StagePreempted, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None or group.stage is not Stage.DIT:
            self._life.discard(event.snapshot)
            return self._wound_down(group, record, now)
        self._life.preempted(record, group, event.snapshot, now)
        return True

    def _snapshot_kept(self, event: events.SnapshotKept, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None or group.stage is not Stage.DIT:
            self._life.discard(event.snapshot)
            return False
        self._life.checkpoints.made(record, group, event.snapshot, now)
        return False

    def _artifact_copied(self, event: events.ArtifactCopied, now: float) -> bool:  # noqa: ARG002
        self._life.checkpoints.copied(event)
        return False

    def _stage_failed(self, event: events.StageFailed, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None:
            return self._wound_down(group, record, now)
        self._life.stage_failed(record, group, event.failure, now)
        return True

    def _stage_aborted(self, event: events.StageAborted, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None:
            return self._wound_down(group, record, now)
        failure = Failure(
            error_type="StageAborted",
            message="its engine gave it up unasked",
            stage=group.stage,
            retryable=True,
        )
        self._life.stage_failed(record, group, failure, now)
        return True

    def _inputs_lost(self, event: events.InputsLost, now: float) -> bool:
        group, record = self._live_group(event, now)
        if group is None or record is None:
            return self._wound_down(group, record, now)
        self._life.inputs_lost(record, group, event.message, now)
        return True

    def _wound_down(self, group: Group | None, record: RequestRecord | None, now: float) -> bool:
        """Whatever an aborted group says last, its GPUs are free."""
        if group is None or record is not None:
            return False
        self._groups.close(group, now)
        return True
