"""From bodies to requests, and from jobs to bodies."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.errors import InvalidRequest, NotReady, UnknownModel
from elastic_dit.http.schemas import ImageCreate, JobError, Status, VideoCreate, VideoJob
from elastic_dit.request import Stage, new_request_id
from elastic_dit.state import Phase

__all__ = [
    "IMAGE_PREFIX",
    "VIDEO_PREFIX",
    "card_for",
    "image_owner",
    "job_id",
    "nearest_frames",
    "options_of",
    "video_job",
]

VIDEO_PREFIX, IMAGE_PREFIX = "video_", "img_"
"""First parts of job ids, by which one knows what they are."""

_PASSED_ON = (
    "prompt", "model", "width", "height", "num_inference_steps", "guidance_scale",
    "negative_prompt", "seed", "priority", "deadline_s",
)  # fmt: skip
_DIGEST_CHARACTERS = 40


def job_id(prefix: str, owner: str, idempotency_key: str | None) -> str:
    """A fresh id, or the one that always belongs to a key of an owner.

    So a repetition finds its job through whatever front end it comes.

    >>> job_id("video_", "http", "k") == job_id("video_", "http", "k")
    True
    >>> job_id("video_", "http", None) == job_id("video_", "http", None)
    False
    """
    if idempotency_key is None:
        return prefix + new_request_id().removeprefix("gen-")
    text = f"{owner}\0{idempotency_key}".encode()
    return prefix + hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS]


def image_owner(owner: str) -> str:
    """Whose images are; told apart from videos, so that either can be listed alone.

    >>> image_owner("http")
    'http:images'
    """
    return f"{owner}:images"


def options_of(body: VideoCreate | ImageCreate, card: ModelCard | None) -> dict[str, Any]:
    """Fields of a generation request that a body asks for.

    Parameters
    ----------
    body : VideoCreate or ImageCreate
    card : ModelCard or None
        Of its model; needed where it gives ``seconds``.

    Raises
    ------
    InvalidRequest
        Where the model makes no clip of that many seconds.

    Examples
    --------
    >>> options_of(ImageCreate(prompt="a ring", size="64x48"), None)
    {'prompt': 'a ring', 'width': 64, 'height': 48, 'num_frames': 1}
    """
    options = {name: getattr(body, name) for name in _PASSED_ON}
    if body.size is not None and body.size != "auto":
        options["width"], options["height"] = map(int, body.size.split("x"))
    if isinstance(body, ImageCreate):
        options["num_frames"] = 1
    else:
        options["fps"], options["num_frames"] = body.fps, body.num_frames
        if body.seconds is not None and body.num_frames is None and card is not None:
            options["num_frames"] = nearest_frames(body.seconds, body.fps, card)
    return {name: value for name, value in options.items() if value is not None}


def nearest_frames(seconds: float, fps: int | None, card: ModelCard) -> int:
    """Frames of the clip that comes nearest to a playing time.

    Parameters
    ----------
    seconds : float
    fps : int or None
        The model's default if None.
    card : ModelCard

    Raises
    ------
    InvalidRequest
        Where that is longer than the model can make.

    Examples
    --------
    >>> from elastic_dit.engine.fake import FAKE_CARD
    >>> nearest_frames(1.0, None, FAKE_CARD), nearest_frames(0.1, 8, FAKE_CARD)
    (9, 1)
    """
    fps = fps or card.defaults.fps
    longest_s = card.max_frames / fps
    if seconds > longest_s + card.frame_multiple / fps / 2:
        raise InvalidRequest("seconds", seconds, f"at most {longest_s:g} at {fps} fps")
    groups = round((seconds * fps - 1) / card.frame_multiple)
    frames = max(0, groups) * card.frame_multiple + 1
    return min(frames, card.max_frames)


def card_for(model: str | None, cards: tuple[ModelCard, ...]) -> ModelCard:
    """The card of a model, of the default where none is named.

    Raises
    ------
    UnknownModel
        Listing those that are served.
    NotReady
        Where none is served yet.
    """
    if not cards:
        raise NotReady("no engine has joined yet")
    for card in cards:
        if model in (None, card.name):
            return card
    raise UnknownModel("model", model, f"one of {', '.join(card.name for card in cards)}")


def status_word(phase: Phase) -> Status:
    """A phase in OpenAI's words.

    >>> status_word(Phase.DENOISED)
    'in_progress'
    """
    match phase:
        case Phase.QUEUED:
            return "queued"
        case Phase.COMPLETED:
            return "completed"
        case Phase.FAILED:
            return "failed"
        case Phase.CANCELLED:
            return "cancelled"
    return "in_progress"


def per_cent(status: RequestStatus) -> int:
    """Of the denoising steps; 100 only once the result is there."""
    if status.phase is Phase.COMPLETED:
        return 100
    return min(99, int(100 * status.progress.fraction))


def video_job(status: RequestStatus) -> VideoJob:
    """A job's body."""
    request, progress = status.request, status.progress
    durations = _stage_seconds(status)
    return VideoJob(
        id=status.request_id,
        model=request.model,
        prompt=request.prompt,
        status=status_word(status.phase),
        progress=per_cent(status),
        created_at=int(status.accepted_at),
        completed_at=None if status.finished_at is None else int(status.finished_at),
        expires_at=None if status.expires_at is None else int(status.expires_at),
        size=f"{request.width}x{request.height}",
        seconds=f"{request.num_frames / request.fps:g}",
        error=_error(status),
        negative_prompt=request.negative_prompt,
        num_frames=request.num_frames,
        fps=request.fps,
        num_inference_steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        seed=request.seed,
        phase=str(status.phase),
        step=progress.step,
        total_steps=progress.total_steps,
        dop=progress.dop,
        queue_position=progress.queue_position,
        eta_s=progress.eta_s,
        attempt=progress.attempt,
        seconds_since_event=max(0.0, time.time() - progress.at),
        inference_time_s=sum(durations.values()) if status.phase is Phase.COMPLETED else None,
        stage_durations=durations,
    )


def _stage_seconds(status: RequestStatus) -> dict[str, float]:
    return {
        str(stage): sum(record.seconds for record in status.records if record.stage is stage)
        for stage in Stage
        if any(record.stage is stage for record in status.records)
    }


def _error(status: RequestStatus) -> JobError | None:
    if status.phase is Phase.FAILED:
        return JobError(code=status.error_type or "generation_failed", message=status.reason)
    return None
