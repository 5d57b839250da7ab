"""What elastic-dit must know about a model family beyond what its own files and blocks declare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.errors import ConfigError
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import Patch, SequencePlan, SequenceShape
from elastic_dit.request import GenerationRequest

__all__ = ["FamilySpec", "Limits"]

_ALWAYS = ("prompt", "height", "width", "num_inference_steps")
"""Fields of a request that every family takes by the same names."""


class Limits(NamedTuple):
    """Limits of `ModelCard` that no configuration tells."""

    max_side: int
    max_pixels: int
    max_frames: int = 1
    max_steps: int = 200


class FamilySpec(ABC):
    """One family of diffusion transformers; subclasses are stateless and tiny.

    A family is either *modular* (`blocks` names its Modular Diffusers blocks) or *classic*
    (`blocks` is None and `encode_returns` names what its pipeline's ``encode_prompt`` returns).
    """

    name: ClassVar[str]
    """Name in `ModelCard.family`."""
    pipelines: ClassVar[tuple[str, ...]]
    """Class names in ``model_index.json`` that mark the family."""
    blocks: ClassVar[str | None] = None
    """Class of the family's blocks in ``diffusers``."""
    trigger: ClassVar[Mapping[str, bool]] = MappingProxyType({"prompt": True})
    """Inputs that select the workflow among the blocks' conditional branches."""
    stubs: ClassVar[tuple[str, ...]] = ("vae",)
    """Components whose configuration other stages read: a stub stands in for them there."""
    encode_returns: ClassVar[tuple[str, ...]] = ()
    """For classic families: names of the values that ``encode_prompt`` returns."""

    defaults: ClassVar[RequestDefaults]
    """What a request takes where its caller gave nothing."""
    limits: ClassVar[Limits]
    """The largest requests that make sense."""
    size_multiple: ClassVar[int] = 1
    """What diffusers' own pipeline demands of width and height, whatever the VAE."""
    max_sequence_length: ClassVar[int]
    """Tokens of text that its transformers were trained with, padding included."""
    longest_text: ClassVar[int | None] = None
    """Most tokens of text that diffusers' own pipeline takes, None where it names no limit."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Further fields of a request that it takes by the same names: negative prompt, frames …"""
    constants: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Further inputs that are the same for every request."""
    needs_image: ClassVar[bool] = False
    """Whether its requests start from a picture, which the encoder stage gets as ``image``."""

    tokenizer: ClassVar[str] = "tokenizer"
    """Component that counts the tokens of a prompt."""
    sequence: ClassVar[SequencePlan | None] = None
    """How its transformers are divided over the GPUs of a group; None runs on one GPU only."""

    @abstractmethod
    def patch(self, folder: ModelFolder) -> Patch:
        """What one token of the model's transformer stands for."""

    def serves(self, folder: ModelFolder) -> bool:
        """Whether the model in `folder` is of this family."""
        return folder.pipeline in self.pipelines

    def check(self, folder: ModelFolder) -> None:  # noqa: B027 - most need nothing here
        """Refuse variants of the family that cannot be run.

        Raises
        ------
        UnsupportedModel
        """

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Limits and defaults of the model in `folder`, from its configurations and `hints`.

        Raises
        ------
        ConfigError
            Where prompts are to be padded to more than the pipeline takes.
        """
        length, longest = self.text_length(hints), self.longest_text
        if longest is not None and length > longest:
            allowed = f"at most {longest}, which is all that {folder.pipeline} takes"
            raise ConfigError(f"models.{name}.max_sequence_length", length, allowed)
        patch = self.patch(folder)
        limits = {
            **self.limits._asdict(),
            "size_multiple": max(self.size_multiple, patch.side),
            "frame_multiple": self.frame_multiple(patch),
            "max_prompt_tokens": length,
            **hints.model_dump(exclude_none=True, exclude={"max_sequence_length", "defaults"}),
        }
        return ModelCard(
            name=name,
            family=self.name,
            needs_image=self.needs_image,
            defaults=self.defaults.model_copy(update=hints.defaults.model_dump(exclude_none=True)),
            **limits,
        )

    def frame_multiple(self, patch: Patch) -> int:
        """Frames by which videos may grow, after the first."""
        return patch.frames

    def text_length(self, hints: ServingHints) -> int:
        """Tokens that prompts are padded to, or cut at."""
        return hints.max_sequence_length or self.max_sequence_length

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """The request in the words of the family's blocks or pipeline, for all stages."""
        return {
            **{field: getattr(request, field) for field in (*_ALWAYS, *self.fields)},
            "max_sequence_length": self.text_length(hints),
            **self.constants,
        }

    def guidance(self, request: GenerationRequest) -> dict[str, Any] | None:
        """Settings of the guider while denoising; None where guidance is off.

        Families without a guider component ignore this.
        """
        if request.guidance_scale <= 1.0:
            return None
        return {"guidance_scale": request.guidance_scale}

    def count_tokens(self, tokenizer: Any, text: str) -> int:
        """Tokens that a prompt takes of ``max_sequence_length``."""
        return len(tokenizer(text)["input_ids"])

    def sequence_shape(
        self,
        request: GenerationRequest,
        folder: ModelFolder,
        count_tokens: Callable[[str], int],
    ) -> SequenceShape:
        """What decides over the degrees of parallelism of `request`.

        Parameters
        ----------
        request : GenerationRequest
        folder : ModelFolder
        count_tokens : callable
            Length of a text in tokens.
        """
        return SequenceShape(
            heads=folder.config("transformer")["num_attention_heads"],
            tokens=self.patch(folder).tokens(request.width, request.height, request.num_frames),
            text_tokens=self.text_tokens(request, folder, count_tokens),
        )

    def text_tokens(
        self,
        request: GenerationRequest,  # noqa: ARG002
        folder: ModelFolder,  # noqa: ARG002
        count_tokens: Callable[[str], int],  # noqa: ARG002
    ) -> int | None:
        """Tokens of the shortest text where it is divided, None where it stays whole."""
        divided = self.sequence is not None and self.sequence.divides_text
        return self.max_sequence_length if divided else None

    def fit_stub(self, name: str, stub: Any) -> None:  # noqa: B027 - most need nothing here
        """Adjust a stub where other stages read something else than its configuration."""

    def __repr__(self) -> str:
        return f"<family {self.name}>"
