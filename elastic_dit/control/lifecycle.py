"""The life of a request: every transition, with the commands that follow from it.

Inputs of a stage are kept where they were made until the *next* stage's output is there, so a
stage that fails runs again from them. Where they are lost too, the request goes back to the
latest stage whose inputs still exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from elastic_dit.config import ControlConfig
from elastic_dit.control.admission import Admission
from elastic_dit.control.checkpoints import Checkpoints
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group, GroupState, GroupTable, largest_block
from elastic_dit.control.orders import Orders
from elastic_dit.control.progress import ObservedTimes
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.events import Cancelled, Command, Complete, Fail, RequestAccepted
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, Failure, GpuId, Phase, StageRecord

__all__ = ["Lifecycle"]

_HISTORY_SHOWN = 5
"""Earlier failures named in a request's last one."""


class Lifecycle:
    """Moves requests from phase to phase.

    Parameters
    ----------
    config : ControlConfig
    table, pool, groups, times, admission, orders
        The controller's parts.
    emit : callable
        Takes the commands.

    Attributes
    ----------
    checkpoints : Checkpoints
        Of what it runs.
    """

    def __init__(
        self,
        config: ControlConfig,
        *,
        table: RequestTable,
        pool: GpuPool,
        groups: GroupTable,
        times: ObservedTimes,
        admission: Admission,
        orders: Orders,
        emit: Callable[[Command], None],
    ) -> None:
        self._config = config
        self._table = table
        self._pool = pool
        self._groups = groups
        self._times = times
        self._admission = admission
        self._orders = orders
        self._emit = emit
        self.checkpoints = Checkpoints(config.checkpoint_every, table, pool, orders, emit)

    def __repr__(self) -> str:
        return f"<Lifecycle of {self._table!r}>"

    def accept(self, event: RequestAccepted, now: float) -> None:
        """Take a new request in."""
        record = self._table.accept(
            event.request,
            now,
            dops=event.dops,
            owner=event.owner,
            attempt=event.attempt,
            age_s=event.age_s,
        )
        self._admission.note_accept(record)
        self._orders.changed[record.request_id] = None

    # ------------------------------------------------------------------------------- reports
    def owner(self, group: Group) -> RequestRecord | None:
        """The request a group works for; None where it only winds down."""
        record = self._table.live.get(group.request_id)
        return record if record is not None and record.group is group else None

    def note_epoch(self, group: Group, epoch: int, now: float) -> None:
        """A message of a group came: with the epoch of a resize it confirms that."""
        if epoch == group.target_epoch and epoch != group.epoch:
            self._close_segment(group, now)
            self._groups.confirm(group, now)

    def step_done(self, record: RequestRecord, group: Group, step: int, now: float) -> bool:
        """Some denoising steps were done; False where that is old news."""
        if step <= group.step:
            return False
        step_s = (now - group.step_at) / (step - group.step)
        # The first step of a group carries the pull of its inputs: no measure of a step,
        # unless there is no other.
        if group.step_s is not None or group.total_steps == 1:
            self._observe(record, group, step_s)
        group.step, group.step_at, group.step_s = step, now, step_s
        self._orders.changed[record.request_id] = None
        return True

    def stage_done(
        self, record: RequestRecord, group: Group, output: ArtifactRef, seconds: float, now: float
    ) -> None:
        """A stage ran to its end: on to the next, or the request is complete."""
        if group.stage is not Stage.DIT:
            self._observe(record, group, seconds)
        self.leave(record, group, now, seconds)
        record.first_sight(output)
        if output.gpu not in self._pool:
            self._went_with_engine(record, output, now)
            return
        self._orders.release(self._table.release_before(record, group.stage))
        following = group.stage.following
        if following is None:
            self._complete(record, output, now)
            return
        self._table.keep_output(record, output)
        record.step = record.request.num_inference_steps if group.stage is Stage.DIT else 0
        self._table.wait_for(record, following, now)

    def preempted(
        self, record: RequestRecord, group: Group, snapshot: ArtifactRef, now: float
    ) -> None:
        """A DiT stage stopped at a boundary; it waits again, and resumes from its snapshot."""
        self.leave(record, group, now)
        record.first_sight(snapshot)
        if snapshot.gpu not in self._pool:
            self._went_with_engine(record, snapshot, now)
            return
        self._orders.release(self._table.keep_snapshot(record, snapshot))
        record.step = snapshot.step
        self._table.wait_for(record, Stage.DIT, now)

    def stage_failed(
        self, record: RequestRecord, group: Group, failure: Failure, now: float
    ) -> None:
        """A stage raised: again on another GPU where that may help, else the request failed."""
        record.avoid.update(group.gpus)
        self.leave(record, group, now)
        if failure.retryable:
            self.retry(record, failure, now, after_s=self._backoff_s(record))
        else:
            record.failures.append(failure)
            self.fail(record, failure, now)

    def inputs_lost(self, record: RequestRecord, group: Group, message: str, now: float) -> None:
        """A stage could not pull what it starts from: that is worth nothing any more."""
        self.leave(record, group, now)
        failure = Failure(
            error_type="InputsLost", message=message, stage=group.stage, retryable=True
        )
        # Those of an engine that has left cannot be had, whatever the request is.
        blame = all(ref.gpu in self._pool for ref in group.inputs)
        self._orders.release(self._table.drop_inputs(record, group.inputs))
        self.retry(record, failure, now, blame=blame, after_s=self._backoff_s(record))

    def discard(self, artifact: ArtifactRef) -> None:
        """Let go of what a group made that nobody waits for any more."""
        record = self._table.get(artifact.request_id)
        if record is None or record.first_sight(artifact):
            self._orders.release((artifact,))

    # ----------------------------------------------------------------------------- the ends
    def cancel(self, record: RequestRecord, reason: str, now: float) -> None:
        """End a request for its client now; a group that works on it is told to stop."""
        if record.group is None:
            self._table.stop_waiting(record)
        else:
            self._close_segment(record.group, now)
            self._orders.abort(record.group, reason, now)
            record.group = None
        self._end(record, Phase.CANCELLED, now)
        self._emit(Cancelled(request_id=record.request_id, reason=reason))

    def fail(self, record: RequestRecord, failure: Failure, now: float) -> None:
        """End a request that neither waits nor runs without a result."""
        told = replace(failure, message=_with_history(record.failures, failure))
        self._end(record, Phase.FAILED, now)
        self._emit(Fail(request_id=record.request_id, failure=told, attempts=record.attempt))
        self._orders.note(now, "fail", record, (), str(told))

    def fail_waiting(self, record: RequestRecord, failure: Failure, now: float) -> None:
        """End a waiting request without a result."""
        self._table.stop_waiting(record)
        record.failures.append(failure)
        self.fail(record, failure, now)

    def retry(
        self,
        record: RequestRecord,
        failure: Failure,
        now: float,
        *,
        blame: bool = True,
        after_s: float = 0.0,
    ) -> None:
        """Queue a request again that neither waits nor runs, unless it was tried often enough.

        Parameters
        ----------
        record : RequestRecord
        failure : Failure
        now : float
        blame : bool
            Whether the request may be the cause: it ran when it happened, and nobody else
            wanted it to happen.
        after_s : float
            How long to wait first.
        """
        if self._note_failure(record, failure, blame=blame):
            self.fail(record, failure, now)
        else:
            self._again(record, failure, now, after_s)

    def _again(
        self, record: RequestRecord, failure: Failure, now: float, after_s: float = 0.0
    ) -> None:
        stage = record.runnable_stage()
        record.attempt += 1
        record.step = {
            Stage.ENCODER: 0,
            Stage.DIT: record.snapshot.step if record.snapshot else 0,
            Stage.DECODER: record.request.num_inference_steps,
        }[stage]
        self._table.wait_for(record, stage, now, after_s)
        self._orders.note(now, "retry", record, (), f"{stage} again: {failure}")

    def result_lost(self, record: RequestRecord, now: float) -> None:
        """A completed request is made again: its inputs went when it was complete."""
        failure = _lost(Stage.DECODER, "the result was lost before its delivery")
        blame = not record.result_left
        self._table.reopen(record)
        self.retry(record, failure, now, blame=blame)

    # ----------------------------------------------------------------------- lost engines
    def engine_lost(self, gpu: GpuId, reason: str, now: float, *, expected: bool = False) -> None:
        """A GPU is gone, with what it held and the work it did; see `EngineLost`."""
        lost = self._pool[gpu]
        for request_id in tuple(lost.prepared):
            self._orders.unprepare(self._table.live[request_id], used_on=(gpu,))
        lost.draining.clear()  # nothing is dropped there any more
        if expected:
            self._table.results_leave(gpu)
        group = lost.group
        worked = group is not None and (gpu in group.gpus or gpu in group.target)
        # Before its first step only the one that began the run has its state.
        began = group is not None and gpu == group.master and group.step_at == group.started_at
        if group is not None:
            if gpu in group.gpus:
                self._close_segment(group, now)
                group.broken = True
            self._groups.free(group, (gpu,), now)
        self._pool.remove(gpu)
        for record in self._table.held_on(gpu):
            self._inputs_gone(record, gpu, reason, now)
        if group is not None and worked:
            self._member_lost(
                group, None if began else gpu, f"GPU {gpu}: {reason}", now, blame=not expected
            )

    def resize_refused(self, group: Group, reason: str, now: float) -> None:
        """A group stays as it is; those that were to join it are called off."""
        joiners = self._groups.split_joiners(group)
        if joiners is not None:
            self._orders.abort(joiners, reason, now)
        self._groups.drop_target(group, now)
        if record := self.owner(group):
            record.epoch = group.epoch
            self._orders.note(now, "resize refused", record, group.gpus, reason)

    def _member_lost(
        self, group: Group, gpu: GpuId | None, reason: str, now: float, *, blame: bool
    ) -> None:
        failure = _lost(group.stage, reason)
        record = self.owner(group)
        if record is None or group.state is GroupState.ABORTING:
            return
        is_over = self._note_failure(record, failure, blame=blame)
        if not is_over and gpu is not None and group.stage is Stage.DIT and group.gpus:
            # Every member of a DiT group holds the whole state: the survivors go on.
            why = f"carry on without the lost: {failure}"
            self._orders.resize(record, largest_block(group.gpus), why, now, lost=(gpu,))
            return
        record.group = None
        if group.held:
            self._orders.abort(group, failure.message, now)
        if is_over:
            self.fail(record, failure, now)
        else:
            self._again(record, failure, now)

    def _inputs_gone(self, record: RequestRecord, gpu: GpuId, reason: str, now: float) -> None:
        """What a request had on a GPU is gone; if it waits to start from that, it goes back."""
        before = record.inputs
        self._table.lose(record, gpu)
        if record.phase.is_waiting and record.inputs != before:
            stage = record.stage
            self._table.stop_waiting(record)
            self._orders.unprepare(record)
            message = f"inputs were on GPU {gpu}: {reason}"
            self.retry(record, _lost(stage, message), now, blame=False)

    def _went_with_engine(self, record: RequestRecord, made: ArtifactRef, now: float) -> None:
        """What a stage made went with its engine; whether that counts was told with the loss."""
        failure = _lost(made.stage, f"GPU {made.gpu} left with what it had made")
        self.retry(record, failure, now, blame=False)

    # ------------------------------------------------------------------------------- shared
    def leave(
        self, record: RequestRecord, group: Group, now: float, seconds: float | None = None
    ) -> None:
        """A request's group ended; GPUs that were still to join it are called off."""
        self._close_segment(group, now, seconds)
        joiners = self._groups.split_joiners(group)
        if joiners is not None:
            self._orders.abort(joiners, "the stage ended before they could join", now)
        self._groups.close(group, now)
        record.group = None

    def free_members(self, group: Group, gpus: tuple[GpuId, ...], now: float) -> None:
        """Some GPUs left a group; a group that works keeps at least its master.

        One that has been told to be in the coming group too is not free: it may wait for that.
        """
        leaving = group.held.intersection(gpus)
        if group.state is not GroupState.ABORTING:
            leaving -= {group.master}
        if leaving.intersection(group.gpus):
            self._close_segment(group, now)
            if group.state is GroupState.RUNNING:
                group.step = group.total_steps  # nobody leaves unasked before the last step
        group.gpus = tuple(gpu for gpu in group.gpus if gpu not in leaving)
        self._groups.free(group, sorted(leaving.difference(group.target)), now)

    def _observe(self, record: RequestRecord, group: Group, seconds: float) -> None:
        master = self._pool.get(group.gpus[0])
        kind = "" if master is None else master.kind
        self._times.observe(record.request, group.stage, len(group.gpus), seconds, kind)

    def _close_segment(self, group: Group, now: float, seconds: float | None = None) -> None:
        """Put the group's work since its last change on the request's timeline."""
        record = self.owner(group)
        if record is None or group.broken:
            return
        if seconds is None or group.segment_at > group.started_at:
            seconds = now - group.segment_at
        record.records.append(
            StageRecord(
                stage=group.stage,
                gpus=group.gpus,
                started_at=group.segment_at,
                seconds=seconds,
                attempt=group.attempt,
            )
        )
        group.segment_at = now

    def _complete(self, record: RequestRecord, result: ArtifactRef, now: float) -> None:
        record.result = result
        self._end(record, Phase.COMPLETED, now)
        self._emit(
            Complete(request_id=record.request_id, result=result, records=tuple(record.records))
        )

    def _end(self, record: RequestRecord, phase: Phase, now: float) -> None:
        self._orders.unprepare(record)
        self._orders.release(self._table.release_before(record, Stage.DECODER))
        self._table.finish(record, phase, now)
        self._admission.note_end(record, now)
        self._orders.changed[record.request_id] = None

    def _backoff_s(self, record: RequestRecord) -> float:
        """Wait before the retry of a stage that failed: none at first, then doubling."""
        return self._config.retry_backoff_s * 2 ** (record.blamed - 1) if record.blamed else 0.0

    def _note_failure(self, record: RequestRecord, failure: Failure, *, blame: bool) -> bool:
        """Remember a failure; True once the request may have caused too many."""
        record.failures.append(failure)
        record.blamed += blame
        return blame and record.blamed >= self._config.max_attempts


def _lost(stage: Stage, message: str) -> Failure:
    return Failure(error_type="EngineLost", message=message, stage=stage, retryable=True)


def _with_history(failures: list[Failure], last: Failure) -> str:
    earlier = [str(failure) for failure in failures[:-1]][-_HISTORY_SHOWN:]
    return f"{last.message} (before that: {'; '.join(earlier)})" if earlier else last.message
