"""CogVideoX text-to-video: no modular blocks, and a stochastic sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["CogVideoXFamily"]

MAX_SEQUENCE_LENGTH = 226
"""Tokens that prompts are padded to, as all its transformers were trained."""
DEFAULTS = RequestDefaults(
    width=720, height=480, num_frames=49, fps=8, num_inference_steps=50, guidance_scale=6.0
)
LIMITS = {"max_side": 1360, "max_pixels": 1360 * 768, "max_frames": 81, "max_steps": 200}


class CogVideoXFamily(FamilySpec):
    """CogVideoX in all sizes."""

    name = "cogvideox"
    pipelines = ("CogVideoXPipeline",)
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (TEXT, IMAGE)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)},
            "transformer_blocks.*": {"image_rotary_emb": (Cut(0, 2), Cut(0, 2))},
        },
    )
    encode_returns = ("prompt_embeds", "negative_prompt_embeds")

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from VAE compression and patch size, frames from temporal compression."""
        vae, transformer = folder.config("vae"), folder.config("transformer")
        compression = 2 ** (len(vae["block_out_channels"]) - 1)
        limits = {
            **LIMITS,
            "size_multiple": compression * transformer["patch_size"],
            # the VAE decodes latents two by two and its first frame alone only in an odd count
            "frame_multiple": 2 * vae["temporal_compression_ratio"],
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """Its names are the request's own."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
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
        vae, transformer = folder.config("vae"), folder.config("transformer")
        side = transformer["patch_size"] * 2 ** (len(vae["block_out_channels"]) - 1)
        latents = 1 + (request.num_frames - 1) // vae["temporal_compression_ratio"]
        frames = -(-latents // (transformer.get("patch_size_t") or 1))
        return SequenceShape(
            heads=transformer["num_attention_heads"],
            tokens=frames * (request.height // side) * (request.width // side),
            text_tokens=transformer.get("max_text_seq_length", MAX_SEQUENCE_LENGTH),
        )
