"""The desk over a real cluster: an asynchronous `elastic_dit.Client`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from elastic_dit.catalog import ModelCard
from elastic_dit.client import Client
from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.future import GenerationFuture
from elastic_dit.http.desk import Readiness
from elastic_dit.metrics.catalogue import GPU_BUSY, STAGE_GPUS
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import Stage, StageKey
from elastic_dit.results import Image, Video

__all__ = ["ClusterDesk", "readiness_of"]

logger = logging.getLogger(__name__)

_LOST = ("closing", "closed")
"""States of a Dask client that will not come back."""
_CHANNELS = 3
"""Bytes of a pixel."""


class ClusterDesk:
    """A `JobDesk` over a cluster.

    It holds the futures of what came through it, because a cluster without a journal ends
    requests for which nobody waits, and frees results that nobody holds. Results beyond
    `results_bytes` are let go of as they come, the oldest first, the newest never.

    A cluster that was lost is looked for again by the next call.

    Parameters
    ----------
    connect : callable
        Makes an asynchronous client and connects it, within a bound of its own.
    results_bytes : int
        Frames of finished jobs to hold in the cluster.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]], results_bytes: int) -> None:
        self._connect = connect
        self._results_bytes = results_bytes
        self._client: Client | None = None
        self._attempt: asyncio.Task[Client] | None = None
        self._held: OrderedDict[str, GenerationFuture] = OrderedDict()
        self._awaited: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ClusterDesk {self._client!r}: {len(self._held)} jobs held>"

    async def client(self) -> Client:
        """The client of the cluster, connected anew if it was lost.

        Raises
        ------
        ClusterError
            Where the cluster does not answer; all who ask meanwhile hear the same.
        """
        if self._client is not None and self._client.dask.status not in _LOST:
            return self._client
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.ensure_future(self._open())
            self._attempt.add_done_callback(_seen)
        return await asyncio.shield(self._attempt)

    async def models(self) -> tuple[ModelCard, ...]:
        """Cards of the models served, the default first."""
        cards: tuple[ModelCard, ...] = await (await self.client()).models()
        return cards

    async def submit(self, options: Mapping[str, Any], owner: str) -> RequestStatus:
        """Take a job in; errors as `Client.submit`."""
        client = await self.client()
        future: GenerationFuture = await client.submit(**options, owner=owner)
        self._held[future.key] = future
        self._held.move_to_end(future.key)
        # Not by a callback of Dask's, which takes a thread for it.
        task = asyncio.ensure_future(self._once_over(future))
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)
        return await self.status_of(future.key)

    async def status_of(self, job_id: str) -> RequestStatus:
        """How a job stands."""
        status: RequestStatus = await (await self.client()).status_of(job_id)
        return status

    async def requests(
        self, limit: int, after: str | None, *, newest_first: bool, owner: str
    ) -> list[RequestStatus]:
        """Jobs of an owner."""
        client = await self.client()
        found: list[RequestStatus] = await client.requests(
            limit, after, newest_first=newest_first, owner=owner
        )
        return found

    async def watch(self, job_id: str) -> AsyncIterator[RequestStatus]:
        """The job after each change, until it is over."""
        status = await self.status_of(job_id)
        if not status.phase.is_terminal:
            future: GenerationFuture = await (await self.client()).future(job_id)
            async with contextlib.aclosing(future.updates()) as updates:
                async for progress in updates:
                    if not progress.phase.is_terminal:
                        yield replace(status, progress=progress)
            del future
            status = await self.status_of(job_id)
        yield status

    async def result(self, job_id: str) -> Video | Image:
        """What a job made."""
        client = await self.client()
        future = self._held.get(job_id)
        if future is None or future.cancelled():  # perhaps only by a lost connection
            future = await client.future(job_id)
        result: Video | Image = await future
        return result

    async def cancel(self, job_id: str, reason: str) -> RequestStatus:
        """Stop a job for everybody."""
        await (await self.client()).cancel(job_id, reason)
        return await self.status_of(job_id)

    async def forget(self, job_id: str) -> None:
        """Stop a job and forget it with its result."""
        client = await self.client()
        self._held.pop(job_id, None)
        await client.forget(job_id)

    async def readiness(self) -> Readiness:
        """Whether anything can be served now."""
        cards, readings = await asyncio.gather(self.models(), self.readings())
        return readiness_of(tuple(card.name for card in cards), readings)

    async def readings(self) -> Readings:
        """The cluster's metrics."""
        readings: Readings = await (await self.client()).metrics()
        return readings

    async def close(self) -> None:
        """Leave the cluster."""
        self._let_go_of_all()
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait((self._attempt,))
        if self._client is not None:
            await self._client.close()

    async def _open(self) -> Client:
        if self._client is not None:
            logger.warning("The cluster was lost; it is looked for again")
        self._let_go_of_all()  # its futures went with the connection
        self._client = client = await self._connect()
        return client

    def _let_go_of_all(self) -> None:
        self._held.clear()
        for task in self._awaited:
            task.cancel()

    async def _once_over(self, future: GenerationFuture) -> None:
        await future.exception()
        self._let_go_of_old()

    def _let_go_of_old(self) -> None:
        done = [future for future in self._held.values() if future.done()]
        held = 0
        for future in reversed(done):
            nbytes = future.request.pixels * _CHANNELS
            if future.status != "finished" or (held and held + nbytes > self._results_bytes):
                del self._held[future.key]
            else:
                held += nbytes


def readiness_of(models: tuple[str, ...], readings: Readings) -> Readiness:
    """What a cluster's metrics say of its models.

    Parameters
    ----------
    models : tuple of str
        Names of those that its engines offer.
    readings : Readings

    Examples
    --------
    >>> readings = Readings()
    >>> for stage in ("encoder", "dit"):
    ...     readings.put(STAGE_GPUS, 1, "m", stage)
    >>> readiness_of(("m",), readings)
    Readiness(gpus=0, served=(), missing=(StageKey(model='m', stage=<Stage.DECODER: 'decoder'>),))
    """
    held = {labels for name, labels, value in readings.values if name == STAGE_GPUS.name and value}
    gpus = sum(1 for name, _, _ in readings.values if name == GPU_BUSY.name)
    missing = tuple(
        StageKey(model, stage)
        for model in models
        for stage in Stage
        if (model, str(stage)) not in held
    )
    lacking = {key.model for key in missing}
    return Readiness(gpus, tuple(model for model in models if model not in lacking), missing)


def _seen(attempt: asyncio.Task[Client]) -> None:
    """Whoever asked may have gone; asyncio would complain of an error that nobody saw."""
    if not attempt.cancelled():
        attempt.exception()
