"""Bodies of requests and answers, in OpenAI's shapes with our fields added."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastic_dit.request import MAX_FPS, MAX_SEED, FiniteFloat, PositiveInt

__all__ = [
    "Deleted",
    "ErrorAnswer",
    "ErrorBody",
    "Health",
    "ImageCreate",
    "ImageData",
    "ImageReference",
    "ImagesAnswer",
    "JobError",
    "ModelBody",
    "ModelList",
    "ReadyAnswer",
    "VideoCreate",
    "VideoJob",
    "VideoList",
]

MAX_PROMPT_CHARACTERS = 32_000
"""As OpenAI has it; a model's own limit is in tokens and far below."""

Status = Literal["queued", "in_progress", "completed", "failed", "cancelled"]
Prompt = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARACTERS)]
Size = Annotated[str, Field(pattern=r"^([1-9]\d{0,5}x[1-9]\d{0,5}|auto)$")]


class _Generation(BaseModel):
    """What both kinds of request may say."""

    model_config = ConfigDict(extra="forbid")

    prompt: Prompt = Field(description="What to show.")
    model: str | None = Field(None, description="Served model; the cluster's first by default.")
    size: Size | None = Field(None, description="Pixels as WIDTHxHEIGHT; beats width and height.")
    width: PositiveInt | None = Field(None, description="Pixels.")
    height: PositiveInt | None = Field(None, description="Pixels.")
    num_inference_steps: PositiveInt | None = Field(None, description="Denoising steps.")
    guidance_scale: Annotated[FiniteFloat, Field(ge=0.0)] | None = Field(
        None, description="Classifier-free guidance; 1 or below is off."
    )
    negative_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARACTERS)] | None = Field(
        None, description="What to steer away from."
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = Field(
        None, description="Of the initial noise: same request and seed, same pixels."
    )
    priority: Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)] | None = Field(
        None, description="Larger goes first, where the dispatch policy honours it."
    )
    deadline_s: Annotated[FiniteFloat, Field(gt=0.0)] | None = Field(
        None, description="Seconds after acceptance by which the result is wanted."
    )
    user: str | None = Field(None, description="Accepted for OpenAI's clients; has no effect.")


class ImageReference(BaseModel):
    """A picture inside the body."""

    model_config = ConfigDict(extra="forbid")

    image_url: str = Field(
        description="data:image/png;base64,… (or jpeg, webp); no other address is opened.",
        pattern="^data:",
    )


class VideoCreate(_Generation):
    """``POST /v1/videos``; an unknown field is refused, never ignored."""

    seconds: Annotated[FiniteFloat, Field(gt=0.0)] | None = Field(
        None, description="Playing time; the nearest the model can make is taken."
    )
    num_frames: PositiveInt | None = Field(None, description="Frames; beats seconds.")
    fps: Annotated[PositiveInt, Field(le=MAX_FPS)] | None = Field(
        None, description="Frames per second."
    )
    input_reference: ImageReference | None = Field(
        None, description="Picture the video starts from; in a form, the file itself."
    )


class ImageCreate(_Generation):
    """``POST /v1/images/generations``; an unknown field is refused, never ignored."""

    n: PositiveInt = Field(1, description="Images; image i has seed + i.")
    response_format: Literal["b64_json", "url"] = "b64_json"
    output_format: Literal["png", "webp", "jpeg"] = "png"
    quality: Literal["auto", "standard"] | None = Field(None, description="Has no effect.")
    background: Literal["auto", "opaque"] | None = Field(None, description="Has no effect.")
    moderation: Literal["auto", "low"] | None = Field(None, description="Has no effect.")
    style: Literal["natural", "vivid"] | None = Field(None, description="Has no effect.")
    safety_identifier: str | None = Field(None, description="Has no effect.")
    stream: Literal[False] | None = None


class JobError(BaseModel):
    """Why a job has no result."""

    code: str
    message: str


class VideoJob(BaseModel):
    """A video to come, or made. The first block is OpenAI's, the rest is ours."""

    id: str
    object: Literal["video"] = "video"
    model: str
    prompt: str
    status: Status
    progress: Annotated[int, Field(ge=0, le=100)]
    """Per cent of the denoising steps; 100 once completed."""
    created_at: int
    completed_at: int | None
    expires_at: int | None = None
    size: str
    seconds: str
    error: JobError | None
    remixed_from_video_id: str | None = None

    negative_prompt: str
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float
    seed: int
    phase: str
    """``queued``, ``encoding``, ``encoded``, ``denoising``, ``denoised``, ``decoding``, an end."""
    step: int
    total_steps: int
    dop: int
    """GPUs at work on it now."""
    queue_position: int
    eta_s: float | None
    attempt: int
    seconds_since_event: float
    """Since the control plane's last report of it."""
    inference_time_s: float | None
    """Seconds its stages took on GPUs, once completed."""
    stage_durations: dict[str, float]
    """The same by stage."""


class VideoList(BaseModel):
    """A page of jobs."""

    object: Literal["list"] = "list"
    data: list[VideoJob]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(BaseModel):
    """The answer to ``DELETE``."""

    id: str
    object: Literal["video.deleted"] = "video.deleted"
    deleted: Literal[True] = True


class ImageData(BaseModel):
    """One image: its bytes or its address."""

    id: str
    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None
    seed: int


class ImagesAnswer(BaseModel):
    """The answer to ``POST /v1/images/generations``."""

    created: int
    data: list[ImageData]
    output_format: str
    size: str
    model: str
    inference_time_s: float


class ModelBody(BaseModel):
    """A served model; `card` holds its limits and defaults."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "elastic-dit"
    card: dict[str, Any]


class ModelList(BaseModel):
    """All served models, the default first."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


class Health(BaseModel):
    """The process is alive."""

    status: Literal["alive"] = "alive"


class ReadyAnswer(BaseModel):
    """Whether a request would be served now."""

    status: Literal["ready", "not_ready"]
    gpus: int
    models: list[str]
    missing: list[str]
    """``model/stage`` that no GPU holds."""
    message: str = ""


class ErrorBody(BaseModel):
    """What went wrong."""

    type: str
    message: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """Every error has this shape."""

    error: ErrorBody
