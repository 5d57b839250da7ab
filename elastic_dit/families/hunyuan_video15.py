"""HunyuanVideo 1.5 text-to-video: two text encoders whose padding is masked in joint attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["HunyuanVideo15Family"]

MAX_SEQUENCE_LENGTH = 1000
"""Tokens that the blocks pad prompts to; they take no other length."""
DEFAULTS = RequestDefaults(
    width=848, height=480, num_frames=121, fps=24, num_inference_steps=50, guidance_scale=6.0
)
LIMITS = {"max_side": 1280, "max_pixels": 1280 * 720, "max_frames": 241, "max_steps": 200}


class HunyuanVideo15Family(FamilySpec):
    """HunyuanVideo 1.5 text-to-video."""

    name = "hunyuan_video15"
    pipelines = ("HunyuanVideo15Pipeline",)
    blocks = "HunyuanVideo15AutoBlocks"
    stubs = ("vae", "transformer")
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn": (IMAGE, TEXT)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)},
            "transformer_blocks.*": {"attention_mask": Cut(1, 2)},
            "rope": {0: Cut(0, 2, output=True), 1: Cut(0, 2, output=True)},
        },
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from VAE compression and patch size, frames from temporal compression."""
        limits = {
            **LIMITS,
            "size_multiple": _side(folder),
            "frame_multiple": folder.config("vae")["temporal_compression_ratio"],
            "max_prompt_tokens": MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:  # noqa: ARG002
        """Its names are the request's own."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "height": request.height,
            "width": request.width,
            "num_frames": request.num_frames,
            "num_inference_steps": request.num_inference_steps,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each patch of latents, and the texts padded to their full length."""
        transformer, side = folder.config("transformer"), _side(folder)
        latents = 1 + (request.num_frames - 1) // folder.config("vae")["temporal_compression_ratio"]
        return SequenceShape(
            heads=transformer["num_attention_heads"],
            tokens=latents
            // transformer["patch_size_t"]
            * (request.height // side)
            * (request.width // side),
            text_tokens=MAX_SEQUENCE_LENGTH,
        )


def _side(folder: ModelFolder) -> int:
    """Pixels along one side of a token."""
    compression = folder.config("vae")["spatial_compression_ratio"]
    return int(compression * folder.config("transformer")["patch_size"])
