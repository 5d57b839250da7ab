"""What routes of videos and of images share: whose a job is, and its result as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import FileResponse

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.errors import UnknownRequest
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.problems import Problem
from elastic_dit.http.renders import VARIANTS
from elastic_dit.http.shapes import video_job
from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase

__all__ = ["IdempotencyKey", "owned", "rendered", "require_result"]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="The same key and body make one job, however often they are sent.",
    ),
]


async def owned(desk: JobDesk, wanted_id: str, prefix: str, owner: str) -> RequestStatus:
    """A job of an owner; anybody else's is as unknown as one that never was.

    Raises
    ------
    UnknownRequest
    """
    if not wanted_id.startswith(prefix):
        raise UnknownRequest(wanted_id)
    status = await desk.status_of(wanted_id)
    if status.owner != owner:
        raise UnknownRequest(wanted_id)
    return status


def require_result(status: RequestStatus) -> None:
    """Refuse to deliver what is not there.

    Raises
    ------
    Problem
        404, as OpenAI's API answers before the end; its code tells the job's status.
    """
    if status.phase is Phase.COMPLETED:
        return
    job = video_job(status)
    message = f"{job.id} has no content: it is {job.status}"
    if job.error is not None:
        message = f"{message} ({job.error.message})"
    raise Problem(404, "invalid_request_error", message, "video_id", f"job_{job.status}")


async def rendered(request: Request, made: GenerationRequest, variant: str) -> FileResponse:
    """A completed job's result as a file of `VARIANTS`; errors as `Renders.file`."""
    state, job_id, form = request.app.state, made.request_id, VARIANTS[variant]
    path = await state.renders.file(made, variant, lambda: state.desk.result(job_id))
    return FileResponse(
        path,
        media_type=form.media_type,
        filename=f"{job_id}{form.suffix}",
        content_disposition_type="inline",
    )
