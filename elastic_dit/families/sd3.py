"""Stable Diffusion 3 and 3.5 text-to-image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["StableDiffusion3Family"]

MAX_SEQUENCE_LENGTH = 256
"""Tokens that prompts are padded to for the largest text encoder."""
CLIP_TOKENS = 77
"""Tokens that the two smaller text encoders add."""
DEFAULTS = RequestDefaults(
    width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=28, guidance_scale=4.5
)
LIMITS = {"max_side": 1536, "max_pixels": 1536 * 1536, "max_frames": 1, "max_steps": 200}


class StableDiffusion3Family(FamilySpec):
    """Stable Diffusion 3 medium and 3.5; some layers of 3.5 medium attend to the image twice."""

    name = "sd3"
    pipelines = ("StableDiffusion3Pipeline",)
    blocks = "StableDiffusion3AutoBlocks"
    stubs = ("vae", "transformer")
    tokenizer = "tokenizer_3"
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn": (IMAGE, TEXT)},
        some_attention={"transformer_blocks.*.attn2": (IMAGE,)},
        cuts={"transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)}},
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from the VAE's compression and the patch size."""
        limits = {
            **LIMITS,
            "size_multiple": _side(folder),
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """Images have no frames to set."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_inference_steps": request.num_inference_steps,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each patch of latents, and the texts padded to their full length."""
        side = _side(folder)
        return SequenceShape(
            heads=folder.config("transformer")["num_attention_heads"],
            tokens=(request.height // side) * (request.width // side),
            text_tokens=CLIP_TOKENS + MAX_SEQUENCE_LENGTH,
        )


def _side(folder: ModelFolder) -> int:
    """Pixels along one side of a token."""
    compression = 2 ** (len(folder.config("vae")["block_out_channels"]) - 1)
    return int(compression * folder.config("transformer")["patch_size"])
