"""Flux.1 text-to-image; guidance is an input of the transformer, so there is one forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["FluxFamily"]

MAX_SEQUENCE_LENGTH = 512
"""Tokens that prompts are padded to for the larger text encoder."""
DEFAULTS = RequestDefaults(
    width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=28, guidance_scale=3.5
)
LIMITS = {"max_side": 2048, "max_pixels": 2048 * 2048, "max_frames": 1, "max_steps": 200}
PACKING = 2
"""Latents are packed in squares of this side before the transformer."""


class FluxFamily(FamilySpec):
    """Flux.1 dev and schnell."""

    name = "flux"
    pipelines = ("FluxPipeline",)
    blocks = "FluxAutoBlocks"
    tokenizer = "tokenizer_2"
    sequence = SequencePlan(
        attention={
            "transformer_blocks.*.attn": (TEXT, IMAGE),
            "single_transformer_blocks.*.attn": (TEXT, IMAGE),
        }
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from the VAE's compression and the packing of latents."""
        limits = {
            **LIMITS,
            "size_multiple": _side(folder),
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """It has no negative prompt."""
        return {
            "prompt": request.prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_inference_steps": request.num_inference_steps,
            "guidance_scale": request.guidance_scale,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """Packed latents, and the text padded to its full length."""
        side = _side(folder)
        return SequenceShape(
            heads=folder.config("transformer")["num_attention_heads"],
            tokens=(request.height // side) * (request.width // side),
            text_tokens=MAX_SEQUENCE_LENGTH,
        )


def _side(folder: ModelFolder) -> int:
    """Pixels along one side of a token."""
    return int(PACKING * 2 ** (len(folder.config("vae")["block_out_channels"]) - 1))
