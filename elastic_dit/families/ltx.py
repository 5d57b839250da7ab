"""LTX-Video text-to-video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["LTXFamily"]


class LTXFamily(FamilySpec):
    """LTX-Video up to 0.9.x whose VAE is that of `AutoencoderKLLTXVideo`.

    Prompts are padded, and the padding is masked; the text is whole on every GPU.
    """

    name = "ltx"
    pipelines = ("LTXPipeline",)
    blocks = "LTXAutoBlocks"
    defaults = RequestDefaults(
        width=704, height=480, num_frames=161, fps=25, num_inference_steps=50, guidance_scale=3.0
    )
    limits = Limits(max_side=1280, max_pixels=1280 * 736, max_frames=257)
    size_multiple = 32
    max_sequence_length = 128
    fields = ("negative_prompt", "num_frames")
    # what positions in time are made for: a request's own rate must not change the pixels
    constants: ClassVar[Mapping[str, Any]] = {"frame_rate": 25}
    # diffusers' plan also divides the text, whose mask its exchange does not follow
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (IMAGE,)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3)},
            "rope": {0: Cut(1, 3, output=True), 1: Cut(1, 3, output=True)},
        },
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """A token is a latent; the VAE's compression, or what it follows from."""
        vae = folder.config("vae")
        factor = 2 ** sum(vae["spatio_temporal_scaling"])
        side = vae.get("spatial_compression_ratio") or vae["patch_size"] * factor
        frames = vae.get("temporal_compression_ratio") or vae["patch_size_t"] * factor
        return Patch(side, frames)
