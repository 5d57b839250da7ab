"""PixArt-Sigma text-to-image: a family without modular blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, Cut, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["PixArtFamily"]

MAX_SEQUENCE_LENGTH = 300
"""Tokens that prompts are padded to; the padding is masked."""
DEFAULTS = RequestDefaults(
    width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=20, guidance_scale=4.5
)
LIMITS = {"max_side": 4096, "max_pixels": 2048 * 2048, "max_frames": 1, "max_steps": 200}


class PixArtFamily(FamilySpec):
    """PixArt-Sigma at the size that is asked for, not at the nearest trained one."""

    name = "pixart"
    pipelines = ("PixArtSigmaPipeline",)
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (IMAGE,)},
        cuts={"transformer_blocks.0": {IMAGE: Cut(1, 3)}},
    )
    encode_returns = (
        "prompt_embeds",
        "prompt_attention_mask",
        "negative_prompt_embeds",
        "negative_prompt_attention_mask",
    )

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from the VAE's compression and the patch size, at least the pipeline's 8."""
        compression = 2 ** (len(folder.config("vae")["block_out_channels"]) - 1)
        limits = {
            **LIMITS,
            "size_multiple": max(8, compression * folder.config("transformer")["patch_size"]),
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """Images have no frames to set."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "clean_caption": False,
            "use_resolution_binning": False,
            "height": request.height,
            "width": request.width,
            "num_inference_steps": request.num_inference_steps,
            "guidance_scale": request.guidance_scale,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each patch; the text is whole on every GPU."""
        transformer = folder.config("transformer")
        side = transformer["patch_size"] * 2 ** (
            len(folder.config("vae")["block_out_channels"]) - 1
        )
        tokens = (request.height // side) * (request.width // side)
        return SequenceShape(heads=transformer["num_attention_heads"], tokens=tokens)
