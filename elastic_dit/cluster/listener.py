"""The client's ear: what it hears of its requests, and asks about them."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import distributed

from elastic_dit.cluster.refusals import raise_refusal
from elastic_dit.cluster.reports import Outcome, Report, read_report, topic_of
from elastic_dit.errors import ClusterError
from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase, Progress

__all__ = ["Listener", "Watch", "call_control"]

_ANSWER_TIMEOUT_S = 30.0
"""Longest wait for the control plane's answer to a small question."""


class Watch:
    """What a client last heard of one request; its futures of that request share it.

    Attributes
    ----------
    request : GenerationRequest or None
        None until the submission is answered.
    progress : Progress
    outcome : Outcome or None
        None until the request has ended.
    heard_at : float
        Time of the last report, seconds on the monotonic clock.
    """

    def __init__(self, request_id: str) -> None:
        self.request: GenerationRequest | None = None
        self.progress = Progress(request_id=request_id, phase=Phase.QUEUED)
        self.outcome: Outcome | None = None
        self.heard_at = monotonic()
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Watch {self.progress.request_id}: {self.progress.phase}>"

    def begin(self, request: GenerationRequest, report: Report | None) -> None:
        """Take the answer to a submission; events may have overtaken it."""
        self.request = request
        if report is not None:
            self.hear(report)

    def hear(self, report: Report) -> None:
        """Take a report, unless a later one is known."""
        self.heard_at = monotonic()
        if report.progress.at >= self.progress.at:
            self.progress, self.outcome = report.progress, report.outcome
            self._tell()

    async def news(self) -> None:
        """Return once something more is known."""
        await self._news.wait()

    def cancel(self, reason: str) -> None:
        """Note that this client has cancelled the request; it hears no more of it."""
        request_id, attempt = self.progress.request_id, self.progress.attempt
        self.progress = replace(
            self.progress, phase=Phase.CANCELLED, dop=0, queue_position=0, eta_s=None
        )
        self.outcome = Outcome(
            request_id=request_id, phase=Phase.CANCELLED, attempts=attempt, reason=reason
        )
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Listener:
    """Watches of one Dask client's requests, fed by its topic."""

    def __init__(self, dask: distributed.Client) -> None:
        self._dask = weakref.proxy(dask)  # whose event handlers hold this
        self._watches: WeakValueDictionary[str, Watch] = WeakValueDictionary()
        self._started = False

    def __repr__(self) -> str:
        return f"<Listener of {self._dask.id}: {len(self._watches)} requests>"

    def start(self) -> None:
        """Subscribe, once."""
        if not self._started:
            self._started = True
            self._dask.subscribe_topic(topic_of(self._dask.id), self._heard)

    def watch(self, request_id: str) -> Watch:
        """The watch of a live request, made if there is none; it lives while a future holds it."""
        watch = self._watches.get(request_id)
        if watch is None or watch.outcome is not None:
            watch = self._watches[request_id] = Watch(request_id)
        return watch

    async def cancel(self, request_id: str, reason: str) -> bool:
        """Stop a request for this client; False where it had ended before."""
        reply = await self._call(
            "elastic_dit_cancel", request_id=request_id, client=self._dask.id, reason=reason
        )
        return bool(reply["cancelled"])

    async def ask(self, request_id: str) -> Report | None:
        """Where a request stands, None if it is no longer known."""
        return read_report(await self._call("elastic_dit_outcome", request_id=request_id))

    async def _call(self, operation: str, **arguments: Any) -> Any:
        return await call_control(self._dask, operation, _ANSWER_TIMEOUT_S, **arguments)

    def _heard(self, event: tuple[float, Any]) -> None:
        report = read_report(event[1])
        if report is None:
            return
        watch = self._watches.get(report.progress.request_id)
        if watch is not None:
            watch.hear(report)


async def call_control(
    dask: distributed.Client, operation: str, limit_s: float, **arguments: Any
) -> Any:
    """Call the control plane: bounded, refusals raised as the errors they stand for.

    Raises
    ------
    ClusterError
        Where it does not answer within `limit_s` seconds, or the client is closed.
    ElasticDitError
        What it refuses with.
    """
    if dask.scheduler is None:
        raise ClusterError("this client is closed")
    try:
        async with asyncio.timeout(limit_s):
            reply = await getattr(dask.scheduler, operation)(**arguments)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"the control plane did not answer {operation} within {limit_s:g} s ({error})"
        ) from None
    raise_refusal(reply)
    return reply
