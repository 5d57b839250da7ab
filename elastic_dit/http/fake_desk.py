"""A desk without a cluster: for tests of the API alone, and of programs that use it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.control.admission import differing_fields
from elastic_dit.engine.fake import FAKE_CARD, fake_frames
from elastic_dit.errors import (
    AdmissionRefused,
    ClusterError,
    GenerationCancelled,
    GenerationFailed,
    NotReady,
    RequestConflict,
    UnknownModel,
    UnknownRequest,
)
from elastic_dit.http.desk import Readiness
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import Stage, StageKey
from elastic_dit.results import Image, Video, make_result
from elastic_dit.state import Phase, Progress, StageRecord

__all__ = ["FakeDesk"]


class FakeDesk:
    """A `JobDesk` whose jobs go on when they are told to.

    Parameters
    ----------
    instant : bool
        Complete each job as it comes.
    max_waiting : int
        Live jobs; one more is refused.
    cards : tuple of ModelCard
        Models served; none for a cluster without engines.

    Attributes
    ----------
    unreachable : bool
        Set it, and every call raises `ClusterError`.
    """

    def __init__(
        self,
        *,
        instant: bool = False,
        max_waiting: int = 1000,
        cards: tuple[ModelCard, ...] = (FAKE_CARD,),
    ) -> None:
        self._instant = instant
        self._max_waiting = max_waiting
        self._cards = cards
        self._jobs: dict[str, RequestStatus] = {}
        self._changed = asyncio.Event()
        self.unreachable = False

    def __repr__(self) -> str:
        return f"<FakeDesk: {len(self._jobs)} jobs>"

    # -- what a test does to a job
    def move(self, job_id: str, phase: Phase, step: int = 0) -> None:
        """Put a job into a phase."""
        status = self._jobs[job_id]
        progress = replace(
            status.progress,
            phase=phase,
            step=step,
            dop=0 if phase.is_waiting or phase.is_terminal else 1,
            eta_s=0.0 if phase.is_terminal else 1.0,
            at=time.time(),
        )
        self._put(replace(status, progress=progress))

    def complete(self, job_id: str) -> None:
        """End a job with its result."""
        self.move(job_id, Phase.COMPLETED, self._jobs[job_id].request.num_inference_steps)
        records = tuple(
            StageRecord(stage=stage, gpus=(0,), started_at=0.0, seconds=0.5, attempt=1)
            for stage in Stage
        )
        status = replace(self._jobs[job_id], records=records, has_result=True)
        self._put(replace(status, finished_at=time.time()))

    def fail(self, job_id: str, reason: str) -> None:
        """End a job without one."""
        self.move(job_id, Phase.FAILED)
        kind, _, _ = reason.partition(":")
        status = replace(self._jobs[job_id], reason=reason, error_type=kind)
        self._put(replace(status, finished_at=time.time()))

    # -- the desk
    async def models(self) -> tuple[ModelCard, ...]:
        """As given."""
        self._reach()
        return self._cards

    async def submit(self, options: Mapping[str, Any], owner: str) -> RequestStatus:
        """Take a job in; it is queued."""
        self._reach()
        request = self._card(options.get("model")).complete(
            {"seed": secrets.randbelow(2**32), **options}
        )
        known = self._jobs.get(request.request_id)
        if known is not None:
            if "seed" not in options:
                request = request.model_copy(update={"seed": known.request.seed})
            if differing := differing_fields(known.request, request):
                raise RequestConflict(request.request_id, differing)
            return known
        live = sum(not status.phase.is_terminal for status in self._jobs.values())
        if live >= self._max_waiting:
            raise AdmissionRefused(f"{live} requests wait already", 1.5)
        now = time.time()
        progress = Progress(
            request_id=request.request_id,
            phase=Phase.QUEUED,
            total_steps=request.num_inference_steps,
            at=now,
        )
        self._put(RequestStatus(request=request, progress=progress, accepted_at=now, owner=owner))
        if self._instant:
            self.complete(request.request_id)
        return self._jobs[request.request_id]

    async def status_of(self, job_id: str) -> RequestStatus:
        """How a job stands."""
        self._reach()
        if job_id not in self._jobs:
            raise UnknownRequest(job_id)
        return self._jobs[job_id]

    async def requests(
        self, limit: int, after: str | None, *, newest_first: bool, owner: str
    ) -> list[RequestStatus]:
        """Jobs of an owner."""
        self._reach()
        found = [status for status in self._jobs.values() if status.owner == owner]
        if newest_first:
            found.reverse()
        if after is not None:
            ids = [status.request_id for status in found]
            if after not in ids:
                raise UnknownRequest(after)
            found = found[ids.index(after) + 1 :]
        return found[:limit]

    async def watch(self, job_id: str) -> AsyncIterator[RequestStatus]:
        """The job, after each change."""
        told = None
        while True:
            changed = self._changed
            status = await self.status_of(job_id)
            if status != told:
                yield (told := status)
            if status.phase.is_terminal:
                return
            await changed.wait()

    async def result(self, job_id: str) -> Video | Image:
        """What `fake_frames` makes."""
        status = await self.status_of(job_id)
        async for each in self.watch(job_id):
            status = each
        if status.phase is Phase.FAILED:
            raise GenerationFailed(job_id, "dit", status.error_type, status.reason)
        if status.phase is Phase.CANCELLED:
            raise GenerationCancelled(job_id, status.reason)
        return make_result(fake_frames(status.request), status.request, status.records)

    async def cancel(self, job_id: str, reason: str) -> RequestStatus:
        """Stop a job."""
        status = await self.status_of(job_id)
        if not status.phase.is_terminal:
            self.move(job_id, Phase.CANCELLED)
            self._put(replace(self._jobs[job_id], reason=reason, finished_at=time.time()))
        return self._jobs[job_id]

    async def forget(self, job_id: str) -> None:
        """Stop a job and forget it."""
        await self.cancel(job_id, "forgotten")
        del self._jobs[job_id]

    async def readiness(self) -> Readiness:
        """Ready where there is a model."""
        self._reach()
        served = tuple(card.name for card in self._cards)
        missing = () if served else tuple(StageKey("fake", stage) for stage in Stage)
        return Readiness(gpus=len(served), served=served, missing=missing)

    async def readings(self) -> Readings:
        """None."""
        self._reach()
        return Readings()

    async def close(self) -> None:
        """Nothing to let go."""

    def _card(self, model: str | None) -> ModelCard:
        if not self._cards:
            raise NotReady("no engine has joined")
        for card in self._cards:
            if model in (None, card.name):
                return card
        raise UnknownModel("model", model, f"one of {', '.join(c.name for c in self._cards)}")

    def _reach(self) -> None:
        if self.unreachable:
            raise ClusterError("the control plane did not answer")

    def _put(self, status: RequestStatus) -> None:
        self._jobs[status.request_id] = status
        self._changed.set()
        self._changed = asyncio.Event()
