"""Parts of this engine in groups: from the command to the event that answers it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from elastic_dit.cluster.worker.desk import Desk, Means
from elastic_dit.cluster.worker.group_box import GroupBox, RunKey
from elastic_dit.cluster.worker.group_run import Left, MemberOutcome, run_member
from elastic_dit.cluster.worker.outbox import Made
from elastic_dit.cluster.worker.stage_run import Failed, Finished, failed
from elastic_dit.cluster.worker.step_pace import StepPace
from elastic_dit.cluster.worker.transfer import Inputs
from elastic_dit.engine.group_context import GroupLimits, GroupSeat
from elastic_dit.engine.protocol import Boundary
from elastic_dit.errors import ClusterError, GroupBroken, TransferError
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
)
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["START_PATIENCE_S", "GroupDesk", "Place"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_PATIENCE_S = 2.0
"""How long a new group's master waits for the others before it begins without them, seconds."""
_LOOPBACK = "127.0.0.1"
"""Where others reach an engine whose worker has no address in a network."""
_RUNS_REMEMBERED = 256
"""Runs that ended here of which is known that they did, and how."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group meets.

    Attributes
    ----------
    store : str
        ``host:port`` of the store.
    addresses : mapping of int to str
        Where the workers of the engines named in a command listen.
    """

    store: str
    addresses: Mapping[GpuId, str]


@dataclass(slots=True, eq=False)
class _Part:
    """A membership between its command and its end."""

    box: GroupBox
    seat: GroupSeat
    inputs: asyncio.Future[Inputs] | None
    pulls: tuple[tuple[Stage, float], ...] = ()
    running: bool = False
    abort_epoch: int = 0


class GroupDesk(Desk):
    """Memberships of one engine in groups.

    Parameters
    ----------
    means : Means

    Attributes
    ----------
    limits : GroupLimits
    max_dop : int
    """

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._parts: dict[RunKey, _Part] = {}
        self._over: OrderedDict[RunKey, None] = OrderedDict()
        self._silent: OrderedDict[tuple[str, int], None] = OrderedDict()
        self.limits = GroupLimits()
        self.max_dop = 1

    def __repr__(self) -> str:
        return f"<GroupDesk: {len(self)} memberships>"

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[GroupBox]:
        return (part.box for part in self._parts.values())

    # ------------------------------------------------------------------------------ commands
    def meet(self, place: Place) -> None:
        """Let the engine form groups before a request needs them, if it is one that does."""
        with contextlib.suppress(ClusterError):  # it closes
            self._host.put(partial(self._meet, self._seat(place)))

    def start(self, start: StartStage, place: Place) -> None:
        """Begin a run as its master, or wait to join it."""
        key = (start.request.request_id, start.attempt, start.epoch)
        if key in self._parts:
            return
        box = self._box(start.request, key, start.epoch)
        if start.gpus[0] != self._host.gpu:
            self._enter(box, self._seat(place, key, str(start.epoch)), None)
            return
        box.lead(start.gpus, START_PATIENCE_S)
        inputs = self._inbox.gather(start.inputs, place.addresses, self._host.gpu)
        self._enter(box, self._seat(place, key), asyncio.ensure_future(inputs))

    def resize(self, resize: Resize, place: Place) -> None:
        """Let a run's group change, or join it."""
        key = (resize.request_id, resize.attempt, resize.since)
        part = self._parts.get(key)
        self._tell_lost(resize)
        if part is not None:
            part.box.order(resize)
        elif self._host.gpu in resize.gpus and not self._is_alone(resize):
            self._join(resize, key, place)

    def _is_alone(self, resize: Resize) -> bool:
        """Whether nobody else is in the run, which then is over, or no group's: none to join."""
        return resize.present == (self._host.gpu,) and not resize.lost

    def _join(self, resize: Resize, key: RunKey, place: Place) -> None:
        fence: dict[str, Any] = {"request_id": key[0], "attempt": key[1], "epoch": resize.epoch}
        if key in self._over and not resize.lost:
            return  # its end is on its way to the control plane
        if key in self._over:
            broken = GroupBroken(resize.request_id, "the run had ended when its master was lost")
            self._channel.send(StageFailed(**fence, failure=failed(broken, Stage.DIT).failure))
        elif resize.request is not None and place.store:
            box = self._box(resize.request, key, resize.epoch)
            self._enter(box, self._seat(place, key, str(resize.epoch)), None)
        else:
            _remember(self._silent, key[:2])

    def preempt(self, preempt: Preempt) -> None:
        """Stop a run at its next step boundary."""
        for part in self._find(preempt.request_id, preempt.attempt, preempt.epoch):
            part.box.post(Boundary.PREEMPT)

    def abort(self, abort: Abort) -> None:
        """Stop a run as soon as can be; who has left it without a word is free, and says so."""
        found = self._find(abort.request_id, abort.attempt, abort.epoch)
        if not found and self._silent.pop((abort.request_id, abort.attempt), 0) is None:
            self._channel.send(
                StageAborted(request_id=abort.request_id, attempt=abort.attempt, epoch=abort.epoch)
            )
        for part in found:
            part.abort_epoch = abort.epoch
            part.box.post(Boundary.ABORT)
            if not part.running:
                self._end(part, self._aborted(part))

    def close(self) -> None:
        """Stop everything, unanswered: whoever asked hears that this engine is gone."""
        for part in self._parts.values():
            part.box.post(Boundary.ABORT)
            if part.inputs is not None:
                part.inputs.cancel()

    # -------------------------------------------------------------------------------- within
    def _box(self, request: GenerationRequest, key: RunKey, epoch: int) -> GroupBox:
        loop = asyncio.get_running_loop()
        assert self._host.gpu is not None, self

        def say(event: Event) -> None:
            loop.call_soon_threadsafe(self._channel.send, event)

        box = GroupBox(self._host.gpu, request, key, epoch, say, StepPace(self.report_interval_s))
        box.checkpoints = self._snapshots.pace(lambda: box.fence)
        return box

    def _seat(self, place: Place, run: RunKey | tuple[()] = (), ticket: str = "") -> GroupSeat:
        gpu = self._host.gpu
        assert gpu is not None, self
        return GroupSeat(
            gpu=gpu,
            run="/".join(map(str, run)),
            store=place.store,
            host=urlsplit(place.addresses.get(gpu, "")).hostname or _LOOPBACK,
            ticket=ticket,
            max_dop=self.max_dop,
            limits=self.limits,
        )

    def _tell_lost(self, resize: Resize) -> None:
        for gpu in resize.lost:
            self._host.member_lost(gpu, resize.reason)

    def _find(self, request_id: str, attempt: int, epoch: int) -> list[_Part]:
        return [
            part
            for (known, tried, since), part in self._parts.items()
            if (known, tried) == (request_id, attempt) and since <= epoch
        ]

    def _enter(self, box: GroupBox, seat: GroupSeat, inputs: asyncio.Future[Inputs] | None) -> None:
        part = self._parts[box.key] = _Part(box, seat, inputs)
        try:
            self.refuse_if_closed()
            self._host.put(partial(self._run, part))
        except ClusterError as error:
            failure = replace(failed(error, Stage.DIT).failure, retryable=True)
            self._end(part, self._event(part, Failed(failure, device_broken=False)))

    async def _meet(self, seat: GroupSeat) -> None:
        try:
            await self._host.run(lambda engine: engine.meet(seat))
        except GroupBroken as error:
            logger.warning("No groups are formed ahead of requests: %s", error)

    async def _run(self, part: _Part) -> None:
        box = part.box
        try:
            inputs = await part.inputs if part.inputs is not None else Inputs()
            if self._parts.get(box.key) is not part:
                return
            part.running, part.pulls = True, inputs.pulls
            member = partial(run_member, box=box, seat=part.seat, inputs=inputs.payload)
            self._finish(part, await self._host.run(member))
        except asyncio.CancelledError:
            if self._parts.get(box.key) is part:
                raise  # the engine closes; else the stage was aborted, and that was answered
        except TransferError as error:
            self._end(part, InputsLost(**box.fence, message=str(error)))
        except Exception as error:
            logger.exception("Cannot run %r", box)
            self._end(part, StageFailed(**box.fence, failure=failed(error, Stage.DIT).failure))

    def _finish(self, part: _Part, outcome: MemberOutcome) -> None:
        stays = isinstance(outcome, Left) and not outcome.run_over
        self._end(part, self._event(part, outcome), over=not stays)
        again = part.box.rejoins() if stays and not part.box.is_aborted else None
        if again is not None:
            box = self._box(part.box.request, part.box.key, again)
            self._enter(box, replace(part.seat, ticket=str(again)), None)
        if isinstance(outcome, Failed) and outcome.device_broken:
            self._channel.give_up(str(outcome.failure))

    def _end(self, part: _Part, event: Event | None, *, over: bool = True) -> None:
        if self._parts.get(part.box.key) is part:
            del self._parts[part.box.key]
            if part.inputs is not None:
                part.inputs.cancel()
            if over and part.box.members:  # else the run goes on, and may want this engine again
                _remember(self._over, part.box.key)
            if event is not None:
                self._channel.send(event)
            if event is None or isinstance(event, ResizeRefused):
                _remember(self._silent, part.box.key[:2])
        self.changed.set()

    def _event(self, part: _Part, outcome: MemberOutcome) -> Event | None:
        """What a membership's end means to the control plane; None where others tell."""
        box = part.box
        if box.is_aborted:
            return self._aborted(part)
        if isinstance(outcome, Failed) and not box.members:
            return ResizeRefused(**box.fence, reason=str(outcome.failure))
        if isinstance(outcome, Failed):
            return StageFailed(**box.fence, failure=outcome.failure)
        if isinstance(outcome, Left):
            return None
        if isinstance(outcome, Finished):
            output = self._keep(box, outcome.made, 0)
            return StageDone(
                **box.fence,
                stage=Stage.DIT,
                output=output,
                seconds=outcome.seconds,
                pulls=part.pulls,
            )
        assert outcome.snapshot is not None, outcome
        snapshot = self._keep(box, outcome.snapshot, outcome.step)
        return StagePreempted(**box.fence, snapshot=snapshot)

    def _aborted(self, part: _Part) -> StageAborted:
        return StageAborted(**{**part.box.fence, "epoch": part.abort_epoch or part.box.epoch})

    def _keep(self, box: GroupBox, made: Made, step: int) -> ArtifactRef:
        request_id, attempt, _ = box.key
        return self._outbox.keep(
            made, request_id=request_id, attempt=attempt, stage=Stage.DIT, gpu=box.gpu, step=step
        )


def _remember(known: OrderedDict[T, None], key: T) -> None:
    known[key] = None
    if len(known) > _RUNS_REMEMBERED:
        known.popitem(last=False)
