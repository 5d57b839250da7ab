"""The desk over a real cluster: an asynchronous `elastic_dit.Client`."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from elastic_dit.catalog import ModelCard
from elastic_dit.client import Client
from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.future import GenerationFuture
from elastic_dit.http.desk import Readiness
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import Stage, StageKey
from elastic_dit.results import Image, Video

__all__ = ["ClusterDesk", "readiness_of"]

logger = logging.getLogger(__name__)

_CHANNELS = 3
"""Bytes of a pixel."""


class ClusterDesk:
    """A `JobDesk` over a cluster.

    It holds the futures of what came through it, because a cluster without a journal ends
    requests for which nobody waits, and frees results that nobody holds. Results beyond
    `results_bytes` are let go of, the oldest first.

    Parameters
    ----------
    client : Client
        Asynchronous and connected; closed with the desk.
    results_bytes : int
        Frames of finished jobs to hold in the cluster.
    """

    def __init__(self, client: Client, results_bytes: int) -> None:
        self._client = client
        self._results_bytes = results_bytes
        self._held: OrderedDict[str, GenerationFuture] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ClusterDesk {self._client!r}: {len(self._held)} jobs held>"

    async def models(self) -> tuple[ModelCard, ...]:
        """Cards of the models served, the default first."""
        cards: tuple[ModelCard, ...] = await self._client.models()
        return cards

    async def submit(self, options: Mapping[str, Any], owner: str) -> RequestStatus:
        """Take a job in; errors as `Client.submit`."""
        future: GenerationFuture = await self._client.submit(**options, owner=owner)
        self._held[future.key] = future
        self._held.move_to_end(future.key)
        self._let_go_of_old()
        return await self.status_of(future.key)

    async def status_of(self, job_id: str) -> RequestStatus:
        """How a job stands."""
        status: RequestStatus = await self._client.status_of(job_id)
        return status

    async def requests(
        self, limit: int, after: str | None, *, newest_first: bool, owner: str
    ) -> list[RequestStatus]:
        """Jobs of an owner."""
        found: list[RequestStatus] = await self._client.requests(
            limit, after, newest_first=newest_first, owner=owner
        )
        return found

    async def watch(self, job_id: str) -> AsyncIterator[RequestStatus]:
        """The job after each change, until it is over."""
        status = await self.status_of(job_id)
        if not status.phase.is_terminal:
            future: GenerationFuture = await self._client.future(job_id)
            async with contextlib.aclosing(future.updates()) as updates:
                async for progress in updates:
                    if not progress.phase.is_terminal:
                        yield replace(status, progress=progress)
            del future
            status = await self.status_of(job_id)
        yield status

    async def result(self, job_id: str) -> Video | Image:
        """What a job made."""
        future = self._held.get(job_id) or await self._client.future(job_id)
        result: Video | Image = await future
        return result

    async def cancel(self, job_id: str, reason: str) -> RequestStatus:
        """Stop a job for everybody."""
        await self._client.cancel(job_id, reason)
        return await self.status_of(job_id)

    async def forget(self, job_id: str) -> None:
        """Stop a job and forget it with its result."""
        self._held.pop(job_id, None)
        await self._client.forget(job_id)

    async def readiness(self) -> Readiness:
        """Whether anything can be served now."""
        return readiness_of(await self._client.status())

    async def readings(self) -> Readings:
        """The cluster's metrics."""
        readings: Readings = await self._client.metrics()
        return readings

    async def close(self) -> None:
        """Leave the cluster."""
        self._held.clear()
        await self._client.close()

    def _let_go_of_old(self) -> None:
        done = [future for future in self._held.values() if future.done()]
        held = 0
        for future in reversed(done):
            request = future.request
            held += request.pixels * _CHANNELS if future.status == "finished" else 0
            if future.status != "finished" or held > self._results_bytes:
                del self._held[future.key]


def readiness_of(status: Mapping[str, Any]) -> Readiness:
    """What a cluster's status says of its models.

    Parameters
    ----------
    status : mapping
        As `elastic_dit.cluster.status.status_of` documents it.

    Examples
    --------
    >>> stages = [{"model": "m", "stage": stage} for stage in ("encoder", "dit")]
    >>> status = {"models": ["m"], "gpus": [{"resident": stages}]}
    >>> readiness_of(status)
    Readiness(gpus=1, served=(), missing=(StageKey(model='m', stage=<Stage.DECODER: 'decoder'>),))
    """
    resident = {(key["model"], key["stage"]) for gpu in status["gpus"] for key in gpu["resident"]}
    missing = tuple(
        StageKey(model, stage)
        for model in status["models"]
        for stage in Stage
        if (model, str(stage)) not in resident
    )
    lacking = {key.model for key in missing}
    served = tuple(model for model in status["models"] if model not in lacking)
    return Readiness(len(status["gpus"]), served, missing)
