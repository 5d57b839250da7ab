"""Progress as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.errors import ElasticDitError
from elastic_dit.http.problems import problem_of
from elastic_dit.http.schemas import ErrorAnswer, VideoJob
from elastic_dit.http.shapes import video_job
from elastic_dit.http.waits import Waits

__all__ = ["EventStream", "event_stream"]

_KEEPALIVE = b": still here\n\n"


class EventStream(StreamingResponse):
    """An answer that lasts: it takes one of the places for such, and always gives it back."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], waits: Waits) -> None:
        # Proxies must not collect what is meant to be read at once.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers)
        self._events = events
        self._waits = waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more or nobody reads them."""
        with self._waits.one():
            async with contextlib.aclosing(self._events):
                await super().__call__(scope, receive, send)


async def event_stream(
    changes: AsyncIterator[RequestStatus], keepalive_s: float, closing: asyncio.Event
) -> AsyncGenerator[bytes]:
    """A job's changes as a browser's ``EventSource`` reads them.

    Each is an event ``progress`` with the job's whole body as data; the last is called after
    the end: ``completed``, ``failed`` or ``cancelled``; or ``error``, with an error's body, where
    the cluster no longer answers.

    Parameters
    ----------
    changes : async iterator of RequestStatus
        Closed when the stream is.
    keepalive_s : float
        Silence after which a comment is sent, so that nobody between takes the connection for
        dead, and a reader that has gone is noticed.
    closing : asyncio.Event
        Ends it; the reader may go on elsewhere.
    """
    async with contextlib.aclosing(_heard(changes, keepalive_s, closing)) as heard:
        try:
            async for status in heard:
                yield _KEEPALIVE if status is None else _event(video_job(status))
        except ElasticDitError as error:
            yield _frame("error", ErrorAnswer(error=problem_of(error).body).model_dump_json())


async def _heard(
    changes: AsyncIterator[RequestStatus], limit_s: float, closing: asyncio.Event
) -> AsyncGenerator[RequestStatus | None]:
    """Changes as they come, None for each `limit_s` without one."""
    upcoming = asyncio.ensure_future(anext(changes, None))
    end = asyncio.ensure_future(closing.wait())
    try:
        while True:
            done, _ = await asyncio.wait(
                (upcoming, end), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                yield None
                continue
            if upcoming not in done or (status := upcoming.result()) is None:
                return
            yield status
            upcoming = asyncio.ensure_future(anext(changes, None))
    finally:
        for each in (upcoming, end):
            each.cancel()
        await asyncio.wait((upcoming, end))
        close = getattr(changes, "aclose", None)
        if close is not None:
            await close()


def _event(job: VideoJob) -> bytes:
    name = "progress" if job.status in ("queued", "in_progress") else job.status
    return _frame(name, job.model_dump_json())


def _frame(name: str, data: str) -> bytes:
    # JSON of pydantic's is one line.
    return f"event: {name}\ndata: {data}\n\n".encode()
