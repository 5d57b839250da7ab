"""``/v1/videos``: jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.http.bodies import read_picture, read_video_body
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.jobs import IdempotencyKey, owned, rendered, require_result
from elastic_dit.http.keys import Owner
from elastic_dit.http.openapi import EVENTS, MEDIA, VIDEO_BODY
from elastic_dit.http.schemas import Deleted, VideoJob, VideoList
from elastic_dit.http.shapes import VIDEO_PREFIX, card_for, job_id, options_of, video_job
from elastic_dit.http.stream import EventStream, event_stream
from elastic_dit.http.waits import Waits

__all__ = ["router"]

router = APIRouter(prefix="/v1/videos", tags=["videos"])

MAX_PAGE = 100
_POLL_HEADER = "openai-poll-after-ms"
"""OpenAI's clients ask again after so many milliseconds."""
_SOONEST_POLL_MS, _USUAL_POLL_MS, _LATEST_POLL_MS = 100, 1000, 5000
_POLLS_PER_ETA = 10

VideoId = Annotated[str, Path(max_length=64, description="Of a job.")]


@router.post("", response_model=VideoJob, openapi_extra=VIDEO_BODY)
async def create_video(
    request: Request, response: Response, owner: Owner, idempotency_key: IdempotencyKey = None
) -> VideoJob:
    """Ask for a video; the answer is a job that is queued."""
    desk: JobDesk = request.app.state.desk
    body, file = await read_video_body(request)
    picture = read_picture(body, file)
    needs_card = body.seconds is not None and body.num_frames is None
    card = card_for(body.model, await desk.models()) if needs_card else None
    options = options_of(body, card)
    options["request_id"] = job_id(VIDEO_PREFIX, owner, idempotency_key)
    if picture is not None:
        options["image"] = picture
    status = await desk.submit(options, owner)
    if request.app.state.spans is not None:
        request.app.state.spans.follow(status)
    return _answer(response, status)


@router.get("", response_model=VideoList)
async def list_videos(
    request: Request,
    owner: Owner,
    after: Annotated[str | None, Query(description="Last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> VideoList:
    """Jobs by the time of their acceptance."""
    desk: JobDesk = request.app.state.desk
    if after is not None:
        await owned(desk, after, VIDEO_PREFIX, owner)
    found = await desk.requests(limit + 1, after, newest_first=order == "desc", owner=owner)
    jobs = [video_job(status) for status in found[:limit]]
    return VideoList(
        data=jobs,
        first_id=jobs[0].id if jobs else None,
        last_id=jobs[-1].id if jobs else None,
        has_more=len(found) > limit,
    )


@router.get("/{video_id}", response_model=VideoJob)
async def retrieve_video(
    request: Request, response: Response, owner: Owner, video_id: VideoId
) -> VideoJob:
    """How a job stands."""
    return _answer(response, await owned(request.app.state.desk, video_id, VIDEO_PREFIX, owner))


@router.get("/{video_id}/content", response_class=FileResponse, responses=MEDIA)
async def download_video(
    request: Request,
    owner: Owner,
    video_id: VideoId,
    variant: Literal["video", "thumbnail", "spritesheet"] = "video",
) -> FileResponse:
    """The video of a completed job as MP4, its first frame, or a strip of frames."""
    status = await owned(request.app.state.desk, video_id, VIDEO_PREFIX, owner)
    require_result(status)
    return await rendered(request, status.request, variant)


@router.get("/{video_id}/events", response_class=StreamingResponse, responses=EVENTS)
async def watch_video(request: Request, owner: Owner, video_id: VideoId) -> EventStream:
    """A job's progress as server-sent events, until it is over."""
    state = request.app.state
    await owned(state.desk, video_id, VIDEO_PREFIX, owner)
    state.waits.check()
    waits: Waits = state.waits
    changes = state.desk.watch(video_id)
    events = event_stream(changes, state.config.keepalive_s, waits.closing)
    return EventStream(events, waits)


@router.post("/{video_id}/cancel", response_model=VideoJob)
async def cancel_video(request: Request, owner: Owner, video_id: VideoId) -> VideoJob:
    """Stop a job: running work ends within a step. One that is over stays as it is."""
    desk: JobDesk = request.app.state.desk
    await owned(desk, video_id, VIDEO_PREFIX, owner)
    return video_job(await desk.cancel(video_id, "cancelled over HTTP"))


@router.delete("/{video_id}", response_model=Deleted)
async def delete_video(request: Request, owner: Owner, video_id: VideoId) -> Deleted:
    """Stop a job if it lives, and forget it with its video."""
    desk: JobDesk = request.app.state.desk
    await owned(desk, video_id, VIDEO_PREFIX, owner)
    await desk.forget(video_id)
    request.app.state.renders.forget(video_id)
    return Deleted(id=video_id)


def _answer(response: Response, status: RequestStatus) -> VideoJob:
    """A job's body, with a hint when to ask again."""
    if not status.phase.is_terminal:
        eta_s = status.progress.eta_s
        pause_ms = _USUAL_POLL_MS if eta_s is None else 1000 * eta_s / _POLLS_PER_ETA
        pause_ms = min(max(pause_ms, _SOONEST_POLL_MS), _LATEST_POLL_MS)
        response.headers[_POLL_HEADER] = str(int(pause_ms))
    return video_job(status)
