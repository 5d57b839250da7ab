"""PixArt-Sigma text-to-image: a family without modular blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["PixArtFamily"]


class PixArtFamily(FamilySpec):
    """PixArt-Sigma at the size that is asked for, not at the nearest trained one.

    Prompts are padded, and the padding is masked; the text is whole on every GPU.
    """

    name = "pixart"
    pipelines = ("PixArtSigmaPipeline",)
    encode_returns = (
        "prompt_embeds",
        "prompt_attention_mask",
        "negative_prompt_embeds",
        "negative_prompt_attention_mask",
    )
    defaults = RequestDefaults(
        width=1024, height=1024, num_frames=1, fps=1, num_inference_steps=20, guidance_scale=4.5
    )
    limits = Limits(max_side=4096, max_pixels=2048 * 2048)
    size_multiple = 8
    max_sequence_length = 300
    fields = ("negative_prompt", "guidance_scale")
    constants: ClassVar[Mapping[str, Any]] = {
        "clean_caption": False,
        "use_resolution_binning": False,
    }
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (IMAGE,)},
        cuts={"transformer_blocks.0": {IMAGE: Cut(1, 3)}},
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and patch size."""
        compression = 2 ** (len(folder.config("vae")["block_out_channels"]) - 1)
        return Patch(compression * folder.config("transformer")["patch_size"])
