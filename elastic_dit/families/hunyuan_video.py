"""HunyuanVideo text-to-video: a classic pipeline, guidance is an input of the transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["HunyuanVideoFamily"]

MAX_SEQUENCE_LENGTH = 256
"""Tokens that prompts are padded to; the padding is masked."""
DEFAULTS = RequestDefaults(
    width=1280, height=720, num_frames=129, fps=24, num_inference_steps=50, guidance_scale=6.0
)
LIMITS = {"max_side": 1280, "max_pixels": 1280 * 720, "max_frames": 129, "max_steps": 200}
PIPELINE_MULTIPLE = 16
"""What diffusers' own pipeline demands, whatever the VAE."""


class HunyuanVideoFamily(FamilySpec):
    """HunyuanVideo 1.0."""

    name = "hunyuan_video"
    pipelines = ("HunyuanVideoPipeline",)
    encode_returns = ("prompt_embeds", "pooled_prompt_embeds", "prompt_attention_mask")
    sequence = SequencePlan(
        attention={
            "transformer_blocks.*.attn": (IMAGE, TEXT),
            "single_transformer_blocks.*.attn": (IMAGE, TEXT),
        },
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)},
            "rope": {0: Cut(0, 2, output=True), 1: Cut(0, 2, output=True)},
        },
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from VAE compression and patch size, frames from temporal compression."""
        vae = folder.config("vae")
        limits = {
            **LIMITS,
            "size_multiple": max(PIPELINE_MULTIPLE, _side(folder)),
            "frame_multiple": vae["temporal_compression_ratio"],
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """It has no negative prompt: its guidance is distilled."""
        return {
            "prompt": request.prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_frames": request.num_frames,
            "num_inference_steps": request.num_inference_steps,
            "guidance_scale": request.guidance_scale,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each patch of latents, and the text padded to its full length."""
        transformer, side = folder.config("transformer"), _side(folder)
        latents = 1 + (request.num_frames - 1) // folder.config("vae")["temporal_compression_ratio"]
        frames = latents // transformer["patch_size_t"]
        return SequenceShape(
            heads=transformer["num_attention_heads"],
            tokens=frames * (request.height // side) * (request.width // side),
            text_tokens=MAX_SEQUENCE_LENGTH,
        )


def _side(folder: ModelFolder) -> int:
    """Pixels along one side of a token."""
    compression = folder.config("vae")["spatial_compression_ratio"]
    return int(compression * folder.config("transformer")["patch_size"])
