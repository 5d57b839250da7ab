"""What a model's weights cannot tell: the limits and defaults it should be served with.

They stand in ``elastic_dit.json`` next to ``model_index.json`` (optional) and may be overridden
per deployment by `elastic_dit.config.ModelConfig.options`, which has the same schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_dit.errors import ConfigError
from elastic_dit.families.folder import ModelFolder

__all__ = ["HINTS_FILE", "DefaultHints", "ServingHints"]

HINTS_FILE = "elastic_dit.json"
"""Name of the optional file in a model folder."""

Count = Annotated[int, Field(ge=1)]


class DefaultHints(BaseModel):
    """Values for requests that give none; a field left out takes the family's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Count | None = None
    height: Count | None = None
    num_frames: Count | None = None
    fps: Count | None = None
    num_inference_steps: Count | None = None
    guidance_scale: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = None


class ServingHints(BaseModel):
    """Serving limits of one model; a field left out takes the family's value.

    Examples
    --------
    >>> hints = ServingHints.of(ModelFolder.open("embedded:shapes"), {"max_steps": 50}, "shapes")
    >>> hints.max_steps, hints.max_sequence_length
    (50, 16)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_sequence_length: Count | None = None
    """Tokens that a prompt is padded to. The result depends on it: a model has one value."""
    max_prompt_tokens: Count | None = None
    """Longest prompt that is accepted; by default what `max_sequence_length` holds."""
    max_side: Count | None = None
    """Largest width or height, pixels."""
    max_pixels: Count | None = None
    """Largest width x height, pixels."""
    max_frames: Count | None = None
    max_steps: Count | None = None
    max_guidance_scale: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    defaults: DefaultHints = DefaultHints()

    @classmethod
    def of(cls, folder: ModelFolder, options: Mapping[str, Any] | None, model: str) -> ServingHints:
        """Hints of a folder, overridden by `options`.

        Raises
        ------
        UnsupportedModel
            Where the folder's file is no JSON object.
        ConfigError
            Naming the first wrong field and where it stands: in the file or among `options`.
        """
        stored = cls._read(folder.extra(HINTS_FILE), f"{folder.path / HINTS_FILE}: ")
        given = cls._read(options or {}, f"models.{model}.options.")
        defaults = given.defaults.model_dump(exclude_unset=True)
        return stored.model_copy(
            update={
                **given.model_dump(exclude_unset=True),
                "defaults": stored.defaults.model_copy(update=defaults),
            }
        )

    @classmethod
    def _read(cls, fields: Mapping[str, Any], where: str) -> ServingHints:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = where + ".".join(map(str, first["loc"]))
            raise ConfigError(field, first["input"], _allowed(first)) from None


def _allowed(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        owner = ServingHints if len(error["loc"]) == 1 else DefaultHints
        return f"one of {', '.join(owner.model_fields)}"
    if error["type"] == "model_type":
        return f"an object of any of {', '.join(DefaultHints.model_fields)}"
    return str(error["msg"]).removeprefix("Input should be ")
