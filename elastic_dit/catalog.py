"""What each served model accepts: limits and defaults, told by the engines that serve it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from elastic_dit.errors import InvalidRequest
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.request import GenerationRequest

__all__ = ["ModelCard", "RequestDefaults"]


class RequestDefaults(BaseModel):
    """Values a request takes where its caller gave none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int
    height: int
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float


class ModelCard(BaseModel):
    """Limits and defaults of one served model: plain data that travels as JSON.

    An engine derives it from the model's own configuration (`families`), so a request is judged
    by what the model can do, not by a table kept elsewhere.

    Examples
    --------
    >>> card = ModelCard(
    ...     name="shapes", family="wan", size_multiple=16, max_side=96, frame_multiple=4,
    ...     max_frames=17, max_steps=100, max_prompt_tokens=16,
    ...     defaults=RequestDefaults(width=64, height=64, num_frames=9, fps=8,
    ...                              num_inference_steps=12, guidance_scale=4.0))
    >>> request = card.complete({"prompt": "a red circle", "request_id": "r1", "seed": 0})
    >>> request.num_frames
    9
    >>> card.check(request.model_copy(update={"num_frames": 15}))
    Traceback (most recent call last):
    elastic_dit.errors.InvalidRequest: num_frames = 15: must be 4k + 1 from 1 to 17, such as 13 or 17
    """  # noqa: E501

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name under which the model is served."""
    family: str
    """Module of `elastic_dit.families` that knows how to run it."""
    size_multiple: Annotated[int, Field(ge=1)]
    """Width and height must be multiples of this many pixels."""
    max_side: Annotated[int, Field(ge=1)]
    """Largest width or height, pixels."""
    max_pixels: Annotated[int, Field(ge=1)] | None = None
    """Largest width x height, pixels; None for no limit beyond `max_side`."""
    frame_multiple: Annotated[int, Field(ge=1)] = 1
    """``num_frames = frame_multiple * k + 1`` (the VAE's temporal compression)."""
    max_frames: Annotated[int, Field(ge=1)] = 1
    """Most frames of one request; 1 for an image model."""
    max_steps: Annotated[int, Field(ge=1)]
    """Most denoising steps."""
    max_prompt_tokens: Annotated[int, Field(ge=1)]
    """Longest prompt, in tokens of the model's own tokenizer, end mark included."""
    max_guidance_scale: float = 100.0
    """Largest guidance scale."""
    needs_image: bool = False
    """Whether it starts from a picture; other models take none."""
    defaults: RequestDefaults
    """What a request takes where its caller gave nothing."""

    def complete(self, options: Mapping[str, Any]) -> GenerationRequest:
        """Fill the model's defaults into `options` and validate the whole.

        A picture that comes without a size decides over it: the default area in its proportions.

        Raises
        ------
        InvalidRequest
            Where a field is unknown, of the wrong type or outside this model's limits.
        """
        given = {name: value for name, value in options.items() if value is not None}
        request = GenerationRequest.parse(
            **{**self.defaults.model_dump(), "model": self.name, **given}
        )
        if request.image is not None and not given.keys() & {"width", "height"}:
            request = request.model_copy(update=self._size_like(request.image))
        self.check(request)
        return request

    def sample(self, options: Mapping[str, Any]) -> GenerationRequest:
        """As `complete`, with a picture of ours where one is needed: to measure and verify by."""
        if self.needs_image and options.get("image") is None:
            size = self.defaults.width, self.defaults.height
            options = {**options, "image": InputImage.of(sample_image(*size))}
        return self.complete(options)

    def check(
        self,
        request: GenerationRequest,
        prompt_tokens: int | None = None,
        negative_prompt_tokens: int | None = None,
    ) -> None:
        """Refuse what this model cannot make.

        Parameters
        ----------
        request : GenerationRequest
            A request for this model.
        prompt_tokens, negative_prompt_tokens : int, optional
            Tokens of its prompts, where they have been counted.

        Raises
        ------
        InvalidRequest
            Naming field, value and what is allowed.
        """
        self._check_image(request.image)
        for field in ("width", "height"):
            self._check_side(field, getattr(request, field))
        if self.max_pixels is not None and request.width * request.height > self.max_pixels:
            size = f"{request.width}x{request.height}"
            raise InvalidRequest("width x height", size, f"at most {self.max_pixels} pixels")
        self._check_frames(request.num_frames)
        if request.num_inference_steps > self.max_steps:
            raise InvalidRequest(
                "num_inference_steps", request.num_inference_steps, f"from 1 to {self.max_steps}"
            )
        if request.guidance_scale > self.max_guidance_scale:
            raise InvalidRequest(
                "guidance_scale", request.guidance_scale, f"from 0 to {self.max_guidance_scale:g}"
            )
        self._check_tokens("prompt", prompt_tokens)
        self._check_tokens("negative_prompt", negative_prompt_tokens)

    def _check_image(self, image: InputImage | None) -> None:
        if self.needs_image and image is None:
            raise InvalidRequest("image", None, f"given: {self.name} starts from a picture")
        if image is not None and not self.needs_image:
            mention = image.without_data()
            raise InvalidRequest("image", mention, f"left out: {self.name} takes no picture")

    def _size_like(self, image: InputImage) -> dict[str, int]:
        """Sides with the proportions of `image` and about the default area, as Wan chooses them."""
        area, aspect = self.defaults.width * self.defaults.height, image.height / image.width
        wanted = {"width": math.sqrt(area / aspect), "height": math.sqrt(area * aspect)}
        steps = self.max_side // self.size_multiple
        return {
            side: self.size_multiple * min(max(1, round(length) // self.size_multiple), steps)
            for side, length in wanted.items()
        }

    def _check_tokens(self, field: str, tokens: int | None) -> None:
        if tokens is not None and tokens > self.max_prompt_tokens:
            limit = f"at most {self.max_prompt_tokens} tokens long"
            raise InvalidRequest(field, f"{tokens} tokens", limit)

    def _check_side(self, field: str, value: int) -> None:
        if value % self.size_multiple or value > self.max_side:
            lower = value - value % self.size_multiple
            near = [
                side
                for side in (lower, lower + self.size_multiple)
                if 0 < side <= self.max_side and value <= self.max_side
            ]
            hint = f", such as {' or '.join(map(str, near))}" if near else ""
            limit = (
                f"a multiple of {self.size_multiple} from {self.size_multiple} to {self.max_side}"
            )
            raise InvalidRequest(field, value, limit + hint)

    def _check_frames(self, value: int) -> None:
        if self.max_frames == 1 and value != 1:
            raise InvalidRequest("num_frames", value, "1: this model makes images")
        if (value - 1) % self.frame_multiple or value > self.max_frames:
            lower = value - (value - 1) % self.frame_multiple
            near = [n for n in (lower, lower + self.frame_multiple) if n <= self.max_frames]
            hint = f", such as {' or '.join(map(str, near))}" if near else ""
            rule = f"{self.frame_multiple}k + 1" if self.frame_multiple > 1 else "a whole number"
            raise InvalidRequest("num_frames", value, f"{rule} from 1 to {self.max_frames}{hint}")
