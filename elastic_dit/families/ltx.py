"""LTX-Video text-to-video."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["LTXFamily"]

MAX_SEQUENCE_LENGTH = 128
"""Tokens that prompts are padded to; the padding is masked."""
SIZE_MULTIPLE = 32
"""What diffusers' own pipeline demands, whatever the VAE."""
FRAME_RATE = 25
"""What the model's positions in time are made for; only playing uses the request's own."""
DEFAULTS = RequestDefaults(
    width=704, height=480, num_frames=161, fps=25, num_inference_steps=50, guidance_scale=3.0
)
LIMITS = {"max_side": 1280, "max_pixels": 1280 * 736, "max_frames": 257, "max_steps": 200}


class LTXFamily(FamilySpec):
    """LTX-Video up to 0.9.x whose VAE is that of `AutoencoderKLLTXVideo`."""

    name = "ltx"
    pipelines = ("LTXPipeline",)
    blocks = "LTXAutoBlocks"
    # diffusers' plan also divides the text, whose mask its exchange does not follow
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (IMAGE,)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3)},
            "rope": {0: Cut(1, 3, output=True), 1: Cut(1, 3, output=True)},
        },
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes and frames from the VAE's compression."""
        spatial, temporal = _compression(folder)
        limits = {
            **LIMITS,
            "size_multiple": max(SIZE_MULTIPLE, spatial),
            "frame_multiple": temporal,
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """The frame rate is the model's: the request's must not change the pixels."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_frames": request.num_frames,
            "frame_rate": FRAME_RATE,
            "num_inference_steps": request.num_inference_steps,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each latent; the text is whole on every GPU."""
        spatial, temporal = _compression(folder)
        frames = 1 + (request.num_frames - 1) // temporal
        return SequenceShape(
            heads=folder.config("transformer")["num_attention_heads"],
            tokens=frames * (request.height // spatial) * (request.width // spatial),
        )


def _compression(folder: ModelFolder) -> tuple[int, int]:
    """Pixels along a side, and frames, of one latent."""
    vae = folder.config("vae")
    factor = 2 ** sum(vae["spatio_temporal_scaling"])
    spatial = vae.get("spatial_compression_ratio") or vae["patch_size"] * factor
    return int(spatial), int(vae.get("temporal_compression_ratio") or vae["patch_size_t"] * factor)
