"""OpenTelemetry spans: of each request by FastAPI itself, of each generation here."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.errors import ConfigError, ElasticDitError
from elastic_dit.http.desk import JobDesk
from elastic_dit.state import Phase

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

__all__ = ["JobSpans", "export_spans"]

logger = logging.getLogger(__name__)

_SERVICE = "elastic-dit"
_NANOSECONDS = 1_000_000_000


def export_spans() -> None:
    """Send this process's spans where the ``OTEL_*`` environment variables say, by OTLP over HTTP.

    Raises
    ------
    ConfigError
        Where the extra ``elastic-dit[otel]`` is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        allowed = f"left out, or elastic-dit[otel] installed ({error})"
        raise ConfigError("otel", "--otel", allowed) from None
    from opentelemetry import trace

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: _SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


class JobSpans:
    """Follows jobs to their ends and makes a span of each, with one inside for every phase.

    The front end that took a job in does this; a repetition of it is followed once more only
    after the first is over.

    Parameters
    ----------
    desk : JobDesk
    tracer : Tracer
    most : int
        Jobs to follow at once; more are not followed.
    """

    def __init__(self, desk: JobDesk, tracer: Tracer, most: int) -> None:
        self._desk = desk
        self._tracer = tracer
        self._most = most
        self._followed: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<JobSpans of {len(self._followed)} jobs>"

    def follow(self, status: RequestStatus) -> None:
        """Begin to follow a job; its span belongs to the request that is being answered."""
        from opentelemetry import context

        key = status.request_id
        if key in self._followed or len(self._followed) >= self._most:
            return
        task = asyncio.ensure_future(self._follow(key, context.get_current()))
        self._followed[key] = task
        task.add_done_callback(lambda _: self._followed.pop(key, None))

    async def close(self) -> None:
        """Follow no more; the spans of jobs that go on end here."""
        tasks = list(self._followed.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, job_id: str, parent: Context) -> None:
        changes = self._desk.watch(job_id)
        span: Span | None = None
        phases = _Phases(self._tracer)
        try:
            async for status in changes:
                span = span or self._begin(status, parent)
                phases.enter(status, span)
                if status.phase.is_terminal:
                    _conclude(span, status)
        except ElasticDitError as error:
            logger.warning("Job %s is followed no further: %s", job_id, error)
        finally:
            phases.leave()
            if span is not None:
                span.end()

    def _begin(self, status: RequestStatus, parent: Context) -> Span:
        request = status.request
        return self._tracer.start_span(
            "generation",
            context=parent,
            start_time=_nanoseconds(status.accepted_at),
            attributes={
                "elastic_dit.request_id": request.request_id,
                "gen_ai.request.model": request.model,
                "elastic_dit.width": request.width,
                "elastic_dit.height": request.height,
                "elastic_dit.num_frames": request.num_frames,
                "elastic_dit.num_inference_steps": request.num_inference_steps,
            },
        )


class _Phases:
    """The span of the phase a job is in."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._phase: Phase | None = None
        self._span: Span | None = None

    def enter(self, status: RequestStatus, parent: Span) -> None:
        """Note where the job is: a new phase ends the one before."""
        from opentelemetry import trace

        if status.phase is not self._phase:
            at = _nanoseconds(status.progress.at)
            self.leave(at)
            self._phase = status.phase
            if not status.phase.is_terminal:
                self._span = self._tracer.start_span(
                    str(status.phase), context=trace.set_span_in_context(parent), start_time=at
                )
        if self._span is not None:
            self._span.set_attribute("elastic_dit.dop", status.progress.dop)
            self._span.set_attribute("elastic_dit.attempt", status.progress.attempt)

    def leave(self, at: int | None = None) -> None:
        """End the present phase's span."""
        if self._span is not None:
            self._span.end(at)
            self._span = None


def _conclude(span: Span, status: RequestStatus) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("elastic_dit.phase", str(status.phase))
    if status.phase is Phase.FAILED:
        span.set_status(StatusCode.ERROR, status.reason)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * _NANOSECONDS)
