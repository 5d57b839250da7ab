"""Started stages of one engine: from the command to the event that answers it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from elastic_dit.cluster.worker.desk import Desk, Means
from elastic_dit.cluster.worker.mailbox import Mailbox
from elastic_dit.cluster.worker.outbox import Made
from elastic_dit.cluster.worker.stage_run import Failed, Finished, Outcome, failed, run_stage
from elastic_dit.cluster.worker.step_pace import StepPace
from elastic_dit.cluster.worker.transfer import Inputs
from elastic_dit.engine.protocol import Boundary
from elastic_dit.errors import ClusterError, TransferError
from elastic_dit.events import (
    Abort,
    Event,
    InputsLost,
    Preempt,
    Resize,
    ResizeRefused,
    StageAborted,
    StageDone,
    StageFailed,
    StagePreempted,
    StartStage,
    StepDone,
)
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["StageDesk"]

logger = logging.getLogger(__name__)

_Key = tuple[str, int, int]


@dataclasses.dataclass(slots=True)
class _Started:
    """A stage between its command and its answer."""

    box: Mailbox
    inputs: asyncio.Future[Inputs]
    running: bool = False
    abort_epoch: int = 0


class StageDesk(Desk):
    """Runs started stages in order; each is answered exactly once.

    Parameters
    ----------
    means : Means

    Notes
    -----
    Commands that name no started stage of that attempt and epoch are stale: the answer to it is
    on its way already, or was given by an earlier life of this process. An abort means older
    epochs too.
    """

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._started: dict[_Key, _Started] = {}

    def __repr__(self) -> str:
        return f"<StageDesk: {len(self)} started>"

    def __len__(self) -> int:
        return len(self._started)

    def __iter__(self) -> Iterator[Mailbox]:
        return (started.box for started in self._started.values())

    def start(self, start: StartStage, addresses: Mapping[GpuId, str]) -> None:
        """Pull the inputs at once, run the stage when it is its turn."""
        key = _key(start)
        if key in self._started:
            return
        try:
            self._refuse(start)
            inputs = self._inbox.gather(start.inputs, addresses, self._host.gpu)
            started = _Started(self._mailbox(start), asyncio.ensure_future(inputs))
            self._started[key] = started
            self._host.put(partial(self._run, started))
        except ClusterError as error:
            refused = self._started.pop(key, None)
            if refused is not None:
                refused.inputs.cancel()
            failure = dataclasses.replace(failed(error, start.stage).failure, retryable=True)
            self._channel.send(StageFailed(**_fence(start), failure=failure))

    def abort(self, abort: Abort) -> bool:
        """Stop a stage as soon as it can be; one that has not begun is answered now.

        Returns
        -------
        bool
            Whether it is here.
        """
        started = self._meant(abort)
        if started is None:
            return False
        started.abort_epoch = abort.epoch
        started.box.post(Boundary.ABORT)
        if not started.running:
            started.inputs.cancel()
            self._answer(started, _aborted(started))
        return True

    def _meant(self, abort: Abort) -> _Started | None:
        """The stage to stop; of a DiT the control plane may count a resize that was refused."""
        for (request_id, attempt, epoch), started in self._started.items():
            is_older = started.box.start.stage is Stage.DIT and epoch < abort.epoch
            known = (request_id, attempt) == (abort.request_id, abort.attempt)
            if known and (epoch == abort.epoch or is_older):
                return started
        return None

    def preempt(self, preempt: Preempt) -> None:
        """Stop a stage at its next step boundary, with a snapshot."""
        started = self._started.get((preempt.request_id, preempt.attempt, preempt.epoch))
        if started is not None:
            started.box.post(Boundary.PREEMPT)

    def refuse_resize(self, resize: Resize) -> None:
        """A stage that was not started in a group stays on its one GPU."""
        if (resize.request_id, resize.attempt, resize.since) in self._started:
            refused = ResizeRefused(
                request_id=resize.request_id,
                attempt=resize.attempt,
                epoch=resize.epoch,
                reason="it was started without a group",
            )
            self._channel.send(refused)

    def close(self) -> None:
        """Stop everything, unanswered: whoever asked hears that this engine is gone."""
        for started in self._started.values():
            started.box.post(Boundary.ABORT)
            started.inputs.cancel()

    def _refuse(self, start: StartStage) -> None:
        self.refuse_if_closed()
        gpu = self._host.gpu
        # Encoders and decoders run on one GPU, whatever others a coupled unit keeps for them.
        runs_on = start.gpus if start.stage is Stage.DIT else start.gpus[:1]
        if runs_on != (gpu,):
            raise ClusterError(f"engine {gpu} cannot run in the group {start.gpus}")

    def _mailbox(self, start: StartStage) -> Mailbox:
        loop = asyncio.get_running_loop()
        fence = _fence(start)

        def report(step: int) -> None:
            loop.call_soon_threadsafe(self._channel.send, StepDone(**fence, step=step))

        since = max((ref.step for ref in start.inputs), default=0)
        checkpoints = self._snapshots.pace(lambda: fence, since)
        return Mailbox(start, report, StepPace(self.report_interval_s), checkpoints)

    async def _run(self, started: _Started) -> None:
        start = started.box.start
        try:
            await self._run_and_answer(started)
        except asyncio.CancelledError:
            if self._is_open(started):
                raise  # the engine closes; else the stage was aborted, and that was answered
        except TransferError as error:
            self._answer(started, InputsLost(**_fence(start), message=str(error)))
        except Exception as error:
            logger.exception("Cannot run %r", started.box)
            self._answer(
                started, StageFailed(**_fence(start), failure=failed(error, start.stage).failure)
            )

    async def _run_and_answer(self, started: _Started) -> None:
        inputs = await started.inputs
        if not self._is_open(started):
            return
        started.running = True
        box = started.box
        outcome = await self._host.run(partial(run_stage, box=box, inputs=inputs.payload))
        self._answer(started, self._event(started, outcome, inputs))
        if isinstance(outcome, Failed) and outcome.device_broken:
            self._channel.give_up(str(outcome.failure))

    def _is_open(self, started: _Started) -> bool:
        return self._started.get(_key(started.box.start)) is started

    def _answer(self, started: _Started, event: Event) -> None:
        if self._started.pop(_key(started.box.start), None) is not None:
            self._channel.send(event)
        self.changed.set()

    def _event(self, started: _Started, outcome: Outcome, inputs: Inputs) -> Event:
        box, start = started.box, started.box.start
        fence = _fence(start)
        if isinstance(outcome, Failed):
            return StageFailed(**fence, failure=outcome.failure)
        if box.aborted():
            return _aborted(started)
        if isinstance(outcome, Finished):
            if start.stage is Stage.DECODER:
                # Before the event goes out: whoever hears of the result must find it.
                self._channel.publish(start.request.request_id, outcome.result)
            output = self._keep(start, outcome.made, step=0)
            return StageDone(
                **fence,
                stage=start.stage,
                output=output,
                seconds=outcome.seconds,
                pulls=inputs.pulls,
            )
        if outcome.snapshot is None:
            return _aborted(started)
        snapshot = self._keep(start, outcome.snapshot, outcome.step)
        return StagePreempted(**fence, snapshot=snapshot)

    def _keep(self, start: StartStage, made: Made, step: int) -> ArtifactRef:
        request_id, gpu = start.request.request_id, start.gpus[0]
        return self._outbox.keep(
            made,
            request_id=request_id,
            attempt=start.attempt,
            stage=start.stage,
            gpu=gpu,
            step=step,
        )


def _key(start: StartStage) -> _Key:
    return start.request.request_id, start.attempt, start.epoch


def _aborted(started: _Started) -> StageAborted:
    """An abort's answer, under the abort's own fence."""
    fence = _fence(started.box.start)
    return StageAborted(**{**fence, "epoch": started.abort_epoch or fence["epoch"]})


def _fence(start: StartStage) -> dict[str, Any]:
    return {
        "request_id": start.request.request_id,
        "attempt": start.attempt,
        "epoch": start.epoch,
    }
