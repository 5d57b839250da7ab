"""What elastic-dit must know about a model family beyond what its own files and blocks declare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import SequencePlan, SequenceShape
from elastic_dit.request import GenerationRequest

__all__ = ["FamilySpec"]


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
    trigger: ClassVar[Mapping[str, bool]] = {"prompt": True}
    """Inputs that select the workflow among the blocks' conditional branches."""
    stubs: ClassVar[tuple[str, ...]] = ("vae",)
    """Components whose configuration other stages read: a stub stands in for them there."""
    encode_returns: ClassVar[tuple[str, ...]] = ()
    """For classic families: names of the values that ``encode_prompt`` returns."""

    needs_image: ClassVar[bool] = False
    """Whether its requests start from a picture, which the encoder stage gets as ``image``."""
    tokenizer: ClassVar[str] = "tokenizer"
    """Component that counts the tokens of a prompt."""
    sequence: ClassVar[SequencePlan | None] = None
    """How its transformers are divided over the GPUs of a group; None runs on one GPU only."""

    @abstractmethod
    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Limits and defaults of the model in `folder`, from its configurations and `hints`."""

    @abstractmethod
    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """The request in the words of the family's blocks or pipeline, for all stages."""

    def serves(self, folder: ModelFolder) -> bool:
        """Whether the model in `folder` is of this family."""
        return folder.pipeline in self.pipelines

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
        request: GenerationRequest,  # noqa: ARG002
        folder: ModelFolder,  # noqa: ARG002
        count_tokens: Callable[[str], int],  # noqa: ARG002
    ) -> SequenceShape:
        """What decides over the degrees of parallelism of `request`.

        Parameters
        ----------
        request : GenerationRequest
        folder : ModelFolder
        count_tokens : callable
            Length of a text in tokens.
        """
        return SequenceShape(heads=1, tokens=1)

    def fit_stub(self, name: str, stub: Any) -> None:  # noqa: B027 - most need nothing here
        """Adjust a stub where other stages read something else than its configuration."""

    def check(self, folder: ModelFolder) -> None:  # noqa: B027 - most need nothing here
        """Refuse variants of the family that cannot be run.

        Raises
        ------
        UnsupportedModel
        """

    def __repr__(self) -> str:
        return f"<family {self.name}>"

    def _card(
        self,
        name: str,
        hints: ServingHints,
        limits: Mapping[str, Any],
        defaults: RequestDefaults,
    ) -> ModelCard:
        """Card of the family's `limits` and `defaults` with the hints on top."""
        given = hints.model_dump(exclude_none=True, exclude={"max_sequence_length", "defaults"})
        chosen = defaults.model_copy(update=hints.defaults.model_dump(exclude_none=True))
        return ModelCard(
            name=name,
            family=self.name,
            needs_image=self.needs_image,
            defaults=chosen,
            **{**limits, **given},
        )
