"""Flux.1 text-to-image; guidance is an input of the transformer, so there is one forward."""

from __future__ import annotations

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, TEXT, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["FluxFamily", "FluxSchnellFamily"]

PACKING = 2
"""Latents are packed in squares of this side before the transformer."""


class FluxFamily(FamilySpec):
    """Flux.1 dev; prompts are padded to their full length."""

    name = "flux"
    pipelines = ("FluxPipeline",)
    blocks = "FluxAutoBlocks"
    tokenizer = "tokenizer_2"
    defaults = RequestDefaults(
        width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=28, guidance_scale=3.5
    )
    limits = Limits(max_side=2048, max_pixels=2048 * 2048)
    max_sequence_length = 512
    longest_text = 512
    fields = ("guidance_scale",)
    sequence = SequencePlan(
        attention={
            "transformer_blocks.*.attn": (TEXT, IMAGE),
            "single_transformer_blocks.*.attn": (TEXT, IMAGE),
        }
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and the packing of latents."""
        return Patch(PACKING * 2 ** (len(folder.config("vae")["block_out_channels"]) - 1))


class FluxSchnellFamily(FluxFamily):
    """Flux.1 schnell, distilled to few steps: no guidance, and half the text of dev."""

    name = "flux_schnell"
    defaults = RequestDefaults(
        width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=4, guidance_scale=0.0
    )
    max_sequence_length = 256

    def serves(self, folder: ModelFolder) -> bool:
        """Told from dev by its transformer, which has no input for guidance."""
        # False is what diffusers takes where the configuration does not say.
        return super().serves(folder) and not folder.config("transformer").get("guidance_embeds")
