"""What a user asks for: one prompt, one video or image."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from elastic_dit.errors import InvalidRequest
from elastic_dit.input_image import InputImage

__all__ = ["MAX_FPS", "MAX_SEED", "GenerationRequest", "Stage", "StageKey", "new_request_id"]

_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:-]{1,64}$")
MAX_SEED = 2**63 - 1
"""Largest seed: what a torch generator takes and a 64-bit message carries."""
MAX_FPS = 1000
"""Frames per second; more is a mistake, and some file formats count no finer."""


class Stage(StrEnum):
    """One of the three parts every diffusion transformer pipeline splits into."""

    ENCODER = "encoder"
    DIT = "dit"
    DECODER = "decoder"

    # Enum's own hash is a Python call, and differs from that of the equal string.
    __hash__ = str.__hash__

    @property
    def following(self) -> Stage | None:
        """The stage that takes this one's output, None after the last.

        >>> Stage.DIT.following
        <Stage.DECODER: 'decoder'>
        """
        return _FOLLOWING.get(self)


_FOLLOWING = {Stage.ENCODER: Stage.DIT, Stage.DIT: Stage.DECODER}


class StageKey(NamedTuple):
    """One stage of one model: the unit that is resident on a GPU."""

    model: str
    stage: Stage


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


PositiveInt = Annotated[int, BeforeValidator(_not_bool), Field(ge=1)]
FiniteFloat = Annotated[float, BeforeValidator(_not_bool), BeforeValidator(_finite)]


class GenerationRequest(BaseModel):
    """One video or image to make, complete and immutable.

    What a *model* allows (size multiples, ``num_frames = 4k + 1``, prompt tokens) is checked by
    `elastic_dit.catalog.ModelCard.check`; here stands what holds for every model. Build one with
    `ModelCard.complete`, which fills the model's defaults, or with `parse`, which turns
    pydantic's complaint into an `InvalidRequest`.

    Examples
    --------
    >>> r = GenerationRequest.parse(
    ...     request_id="r1", model="shapes", prompt="a red circle moving left",
    ...     width=64, height=64, num_frames=9, fps=8, num_inference_steps=12,
    ...     guidance_scale=4.0, seed=7)
    >>> r.pixels
    36864
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    request_id: Annotated[str, Field(pattern=_REQUEST_ID.pattern)]
    """Chosen by the caller or made by `new_request_id`; the key of every record and retry."""
    model: Annotated[str, Field(min_length=1)]
    """Name under which engines serve the model."""
    prompt: Annotated[str, Field(min_length=1)]
    """What to show."""
    negative_prompt: str = ""
    """What to steer away from; empty means unconditional guidance."""
    width: PositiveInt
    """Pixels."""
    height: PositiveInt
    """Pixels."""
    num_frames: PositiveInt
    """Frames; 1 makes an image."""
    fps: Annotated[PositiveInt, Field(le=MAX_FPS)]
    """Frames per second of the result; does not change the pixels."""
    num_inference_steps: PositiveInt
    """Denoising steps."""
    guidance_scale: Annotated[FiniteFloat, Field(ge=0.0)]
    """Classifier-free guidance; 1 or below switches it off."""
    seed: Annotated[int, BeforeValidator(_not_bool), Field(ge=0, le=MAX_SEED)]
    """Seed of the initial noise: same request and seed, same pixels."""
    priority: int = 0
    """Larger goes first where the dispatch policy honours it."""
    deadline_s: Annotated[FiniteFloat, Field(gt=0.0)] | None = None
    """Seconds after acceptance by which the result is wanted, None for whenever."""
    image: InputImage | None = None
    """Picture that the video starts from, for models that need one; given as a file's bytes."""

    @property
    def pixels(self) -> int:
        """Width x height x frames."""
        return self.width * self.height * self.num_frames

    @property
    def is_image(self) -> bool:
        """Whether one frame is asked for."""
        return self.num_frames == 1

    def without_image_data(self) -> Self:
        """The same request, its picture only mentioned: all that later stages need.

        It equals the whole one, and a request without a picture is its own.
        """
        if self.image is None or not self.image.is_held:
            return self
        return self.model_copy(update={"image": self.image.without_data()})

    @classmethod
    def parse(cls, **fields: Any) -> Self:
        """Build a request from unchecked fields.

        Raises
        ------
        InvalidRequest
            Naming the first wrong field, its value and what is allowed.
        """
        if not str(fields.get("prompt") or "").strip():
            raise InvalidRequest("prompt", fields.get("prompt"), "a text that is not empty")
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise _as_invalid_request(error) from None


def new_request_id() -> str:
    """A fresh request id, sortable by time of making.

    >>> _REQUEST_ID.fullmatch(new_request_id()) is not None
    True
    """
    import secrets
    import time

    return f"gen-{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(5)}"


def _as_invalid_request(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "request"
    if field == "image" and isinstance(first["input"], bytes):  # megabytes, in a message
        first["input"] = f"{len(first['input'])} bytes"
    if first["type"] == "missing":
        return InvalidRequest(field, None, "given: it has no default")
    if first["type"] == "extra_forbidden":
        known = ", ".join(GenerationRequest.model_fields)
        return InvalidRequest(field, first["input"], f"one of the known fields: {known}")
    return InvalidRequest(field, first["input"], _allowed(field, first["msg"]))


_ALLOWED = {
    "request_id": "1 to 64 letters, digits, dots, colons, dashes or underscores",
    "guidance_scale": "a finite number of 0 or more",
    "seed": f"a whole number from 0 to {MAX_SEED}",
    "deadline_s": "a finite number of seconds above 0",
    **dict.fromkeys(
        ("width", "height", "num_frames", "num_inference_steps"),
        "a whole number of 1 or more",
    ),
    "fps": f"a whole number from 1 to {MAX_FPS}",
}


def _allowed(field: str, message: str) -> str:
    """What may stand in `field`, in our words, or pydantic's where we have none."""
    if field in _ALLOWED:
        return _ALLOWED[field]
    for lead in ("Value error, must be ", "Input should be "):
        if message.startswith(lead):
            return message.removeprefix(lead)
    return message
