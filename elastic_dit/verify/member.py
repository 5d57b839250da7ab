"""One process of a verification: an engine that does jobs until its parent is gone."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch

from elastic_dit.engine.group_context import GroupLimits, Regroup, ScriptedContext
from elastic_dit.engine.group_store import connect
from elastic_dit.engine.groups import GroupTable
from elastic_dit.engine.ledger import Ledger
from elastic_dit.engine.payload import pack, unpack
from elastic_dit.engine.protocol import Boundary, Payload
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.errors import ElasticDitError, GenerationFailed
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import GpuId
from elastic_dit.verify.jobs import (
    CANCEL,
    Denoise,
    Denoised,
    Load,
    MemberSettings,
    Packed,
    Prepare,
    Prepared,
)
from elastic_dit.verify.plans import ticket_of

__all__ = ["serve"]

STEP_FLOOR_S = 60.0
"""No step is given up before that: what is looked for are wrong results, not slow steps."""

Job = Prepare | Load | Denoise


def serve(pipe: Connection, settings: MemberSettings) -> None:
    """Do jobs until the other end of `pipe` is closed, even in the midst of one.

    Parameters
    ----------
    pipe : Connection
        Jobs come in; out goes ``(True, answer)`` or ``(False, error)`` for each.
    settings : MemberSettings
    """
    inbox: queue.SimpleQueue[tuple[Job, threading.Event]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    member: _Member | None = None
    while True:
        job, cancelled = inbox.get()
        answer: tuple[bool, Any]
        try:
            member = member or _Member(settings)
            answer = True, member.do(job, cancelled)
        except ElasticDitError as error:
            answer = False, error
        except BaseException as error:
            kind, text = type(error).__name__, " ".join(str(error).split())
            answer = False, GenerationFailed("verify", Stage.DIT, kind, text)
        pipe.send(answer)


def _listen(pipe: Connection, inbox: queue.SimpleQueue[tuple[Job, threading.Event]]) -> None:
    cancelled = threading.Event()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone, and with it whoever wants a result
        if job == CANCEL:
            cancelled.set()
            cancelled = threading.Event()
        else:
            inbox.put((job, cancelled))


class _Undisturbed:
    """Lets a stage run to its end, and counts its steps."""

    steps = 0

    def boundary(self, step: int, total_steps: int) -> Boundary:
        self.steps = max(step, total_steps)
        return Boundary.CONTINUE

    def aborted(self) -> bool:
        return False


class _Script(ScriptedContext):
    """Follows a script until its parent gives up."""

    def __init__(
        self, orders: Mapping[int, Boundary | Regroup], cancelled: threading.Event
    ) -> None:
        super().__init__(orders)
        self._given_up = cancelled

    def aborted(self) -> bool:
        return self._given_up.is_set()


class _Member:
    """An engine and its groups."""

    def __init__(self, settings: MemberSettings) -> None:
        self._gpu = settings.gpu
        self._limit_s = settings.limit_s
        self._model = settings.source.name
        self._engine = TorchEngine([settings.source], settings.device, settings.cpu_threads)
        # under gloo tensors go through the host, so that processes may share a GPU
        device = settings.device if settings.backend == "nccl" else "cpu"
        self._table = GroupTable(
            connect(settings.store),
            settings.gpu,
            device=torch.device(device),
            timeout_s=settings.limit_s,
        )

    def do(self, job: Job, cancelled: threading.Event) -> Prepared | Denoised | None:
        """The answer to a job."""
        match job:
            case Prepare():
                return self._prepare(job)
            case Load():
                self._load(Stage.DIT)
                return None
            case Denoise():
                return self._denoise(job, cancelled)

    def _prepare(self, job: Prepare) -> Prepared:
        request = self._engine.card(self._model).sample(job.fields)
        self._load(Stage.ENCODER)
        encoded = self._engine.run(Stage.ENCODER, request, None, _Undisturbed()).payload
        self._engine.drop(StageKey(self._model, Stage.ENCODER))
        self._load(Stage.DIT)
        context = _Undisturbed()
        alone = self._engine.run(Stage.DIT, request, encoded, context)
        return Prepared(
            request=request.without_image_data().model_dump(),
            steps=context.steps,
            dops=self._engine.allowed_dops(request, job.max_dop),
            kind=self._engine.info().kind,
            encoded=_packed(encoded),
            reference=_packed(alone.payload),
            seconds=alone.seconds,
        )

    def _load(self, stage: Stage) -> None:
        self._engine.load(StageKey(self._model, stage))

    def _denoise(self, job: Denoise, cancelled: threading.Event) -> Denoised:
        context = _Script(self._orders(job.orders), cancelled)
        outcome = self._engine.run_member(
            GenerationRequest(**job.request),
            None if job.inputs is None else unpack(*job.inputs),
            context,
            table=self._table,
            ledger=Ledger(self._table.store, job.run, self._gpu, settle_s=1.0),
            ticket=job.ticket,
            limits=GroupLimits(join_s=self._limit_s, step_floor_s=STEP_FLOOR_S),
            max_dop=max(map(len, job.orders.values()), default=1),
        )
        return Denoised(
            end=outcome.end.value,
            reason=outcome.reason,
            changes=tuple((change.step, change.members) for change in context.changes),
            refusals=tuple(context.refusals),
            payload=None if outcome.payload is None else _packed(outcome.payload),
        )

    def _orders(self, orders: Mapping[int, tuple[GpuId, ...]]) -> dict[int, Boundary | Regroup]:
        return {
            step: Regroup(members=members, ticket=ticket_of(step), patience_s=self._limit_s)
            for step, members in orders.items()
        }


def _packed(payload: Payload) -> Packed:
    header, frames = pack(payload)
    return Packed(header, tuple(bytes(frame) for frame in frames))
