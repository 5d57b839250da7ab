"""Counts what the controller is told and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from elastic_dit import events
from elastic_dit.control.controller import Controller
from elastic_dit.control.requests import RequestRecord
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.tally import Tally
from elastic_dit.request import Stage
from elastic_dit.state import Phase

__all__ = ["Recorder"]

_FINISHED_REASON = {Phase.COMPLETED: "stop", Phase.FAILED: "error", Phase.CANCELLED: "abort"}
"""vLLM's words for the ways a request ends."""


class Recorder:
    """Adds up events and commands, after the controller has dealt with them.

    Attributes
    ----------
    tally : Tally
    """

    def __init__(self) -> None:
        self.tally = Tally()
        for metric in (catalogue.ENGINES_JOINED, catalogue.ENGINES_LEFT, catalogue.ENGINES_LOST):
            # Prometheus sees no increase in a series that begins with its first event.
            self.tally.count(metric, by=0)
        self._of: dict[type, Callable[[Controller, Any, float], None]] = {
            events.RequestAccepted: self._accepted,
            events.StepDone: self._step_done,
            events.StageDone: self._stage_done,
            events.StageFailed: self._stage_failed,
            events.InputsLost: self._inputs_lost,
            events.EngineJoined: self._engine_joined,
            events.EngineLost: self._engine_lost,
            events.RestartEngine: self._engine_hung,
            events.StageLoaded: self._loaded,
            events.StageLoadFailed: self._load_failed,
            events.StartStage: self._started,
            events.Resize: self._resized,
            events.Preempt: self._preempted,
            events.Complete: self._ended,
            events.Fail: self._ended,
            events.Cancelled: self._ended,
        }

    def __repr__(self) -> str:
        return f"<Recorder {self.tally!r}>"

    def note(
        self,
        controller: Controller,
        event: events.Event,
        commands: Iterable[events.Command],
        now: float,
    ) -> None:
        """Count an event and what followed from it.

        Parameters
        ----------
        controller : Controller
            As it is after the event.
        event : Event
        commands : iterable of Command
        now : float
            When it was handled, seconds on the controller's clock.
        """
        for message in (event, *commands):
            count = self._of.get(type(message))
            if count is not None:
                count(controller, message, now)

    # ------------------------------------------------------------------------------- requests
    def _accepted(self, _: Controller, event: events.RequestAccepted, __: float) -> None:
        self.tally.count(catalogue.REQUESTS_ACCEPTED, event.request.model)

    def _ended(
        self,
        controller: Controller,
        command: events.Complete | events.Fail | events.Cancelled,
        now: float,
    ) -> None:
        record = controller.table.get(command.request_id)
        if record is None or record.phase not in _FINISHED_REASON:
            return
        model = record.request.model
        self.tally.count(catalogue.REQUESTS_ENDED, model, _FINISHED_REASON[record.phase])
        if record.phase is Phase.COMPLETED:
            self._completed(record, now - record.accepted_at)

    def _completed(self, record: RequestRecord, latency_s: float) -> None:
        request, model = record.request, record.request.model
        kind = "image" if request.is_image else "video"
        self.tally.observe(catalogue.LATENCY_S, latency_s, model, kind)
        for stage in Stage:
            seconds = sum(each.seconds for each in record.records if each.stage is stage)
            self.tally.observe(catalogue.EXEC_S, seconds, model, str(stage))
        if request.is_image:
            self.tally.count(catalogue.IMAGES, model)
            return
        duration_s = request.num_frames / request.fps
        self.tally.observe(catalogue.VIDEO_DURATION_S, duration_s, model)
        self.tally.observe(catalogue.VIDEO_RTF, latency_s / duration_s, model)

    # --------------------------------------------------------------------------------- stages
    def _started(self, controller: Controller, start: events.StartStage, now: float) -> None:
        model, stage = start.request.model, str(start.stage)
        self.tally.count(catalogue.ATTEMPTS, model, stage, str(start.attempt))
        record = controller.table.get(start.request.request_id)
        if record is not None:
            self.tally.observe(catalogue.QUEUE_TIME_S, now - record.waiting_since, model, stage)
        for ref in start.inputs:
            if ref.gpu == start.gpus[0]:
                self.tally.count(catalogue.TRANSFERS_LOCAL, str(ref.stage), stage)
            else:
                self.tally.observe(catalogue.TRANSFER_BYTES, ref.nbytes, str(ref.stage), stage)

    def _step_done(self, controller: Controller, event: events.StepDone, now: float) -> None:
        record = controller.table.live.get(event.request_id)
        group = record.group if record is not None else None
        # A stale report leaves the group as it was.
        if record is not None and group is not None and group.step_at == now and group.step_s:
            self.tally.observe(catalogue.STEP_S, group.step_s, record.request.model, str(group.dop))

    def _stage_done(self, _: Controller, event: events.StageDone, __: float) -> None:
        for made_by, seconds in event.pulls:
            labels = str(made_by), str(event.stage)
            self.tally.observe(catalogue.TRANSFER_TIME_S, seconds, *labels)

    def _stage_failed(self, _: Controller, event: events.StageFailed, __: float) -> None:
        failure = event.failure
        self.tally.count(catalogue.FAILURES, str(failure.stage), failure.error_type)

    def _inputs_lost(self, controller: Controller, event: events.InputsLost, _: float) -> None:
        record = controller.table.get(event.request_id)
        if record is not None:
            self.tally.count(catalogue.TRANSFERS_LOST, str(record.stage))

    def _resized(self, controller: Controller, command: events.Resize, _: float) -> None:
        record = controller.table.get(command.request_id)
        before, after = len(command.present), len(command.gpus)
        if record is not None and before != after:
            direction = "promotion" if after > before else "demotion"
            self.tally.count(catalogue.RESIZES, record.request.model, direction)

    def _preempted(self, controller: Controller, command: events.Preempt, _: float) -> None:
        record = controller.table.get(command.request_id)
        if record is not None:
            self.tally.count(catalogue.PREEMPTIONS, record.request.model)

    # -------------------------------------------------------------------------------- engines
    def _engine_joined(self, *_: object) -> None:
        self.tally.count(catalogue.ENGINES_JOINED)

    def _engine_lost(self, _: Controller, event: events.EngineLost, __: float) -> None:
        self.tally.count(catalogue.ENGINES_LEFT if event.expected else catalogue.ENGINES_LOST)

    def _engine_hung(self, *_: object) -> None:
        self.tally.count(catalogue.ENGINES_LOST)

    def _loaded(self, _: Controller, event: events.StageLoaded, __: float) -> None:
        self.tally.observe(catalogue.LOAD_S, event.seconds, event.model, str(event.stage))

    def _load_failed(self, _: Controller, event: events.StageLoadFailed, __: float) -> None:
        self.tally.count(catalogue.LOADS_FAILED, event.model, str(event.stage))
