"""Stable Diffusion 3 and 3.5 text-to-image."""

from __future__ import annotations

from collections.abc import Callable

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits
from elastic_dit.request import GenerationRequest

__all__ = ["StableDiffusion3Family"]

CLIP_TOKENS = 77
"""Tokens that the two smaller text encoders add."""


class StableDiffusion3Family(FamilySpec):
    """Stable Diffusion 3 medium and 3.5; some layers of 3.5 medium attend to the image twice."""

    name = "sd3"
    pipelines = ("StableDiffusion3Pipeline",)
    blocks = "StableDiffusion3AutoBlocks"
    stubs = ("vae", "transformer")
    tokenizer = "tokenizer_3"
    defaults = RequestDefaults(
        width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=28, guidance_scale=4.5
    )
    limits = Limits(max_side=1536, max_pixels=1536 * 1536)
    max_sequence_length = 256
    longest_text = 512
    fields = ("negative_prompt",)
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn": (IMAGE, TEXT)},
        some_attention={"transformer_blocks.*.attn2": (IMAGE,)},
        cuts={"transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)}},
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and patch size."""
        compression = 2 ** (len(folder.config("vae")["block_out_channels"]) - 1)
        return Patch(compression * folder.config("transformer")["patch_size"])

    def text_tokens(
        self,
        request: GenerationRequest,  # noqa: ARG002
        folder: ModelFolder,  # noqa: ARG002
        count_tokens: Callable[[str], int],  # noqa: ARG002
    ) -> int:
        """The texts of all encoders, padded to their full length."""
        return CLIP_TOKENS + self.max_sequence_length
