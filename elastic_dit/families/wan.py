"""Wan 2.1 text-to-video and text-to-image, and everything saved as a ``WanPipeline`` like it."""

from __future__ import annotations

from typing import Any

from elastic_dit.catalog import RequestDefaults
from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["WanFamily"]


class WanFamily(FamilySpec):
    """Wan 2.1 T2V in all sizes; the text is whole on every GPU."""

    name = "wan"
    pipelines = ("WanPipeline",)
    blocks = "WanBlocks"
    defaults = RequestDefaults(
        width=832, height=480, num_frames=81, fps=16, num_inference_steps=50, guidance_scale=5.0
    )
    limits = Limits(max_side=1280, max_pixels=1280 * 720, max_frames=121)
    max_sequence_length = 512
    fields = ("negative_prompt", "num_frames")
    sequence = SequencePlan(attention={"blocks.*.attn1": (IMAGE,)})

    def check(self, folder: ModelFolder) -> None:
        """Refuse Wan 2.2: two transformers, or a timestep for each token."""
        if folder.component("transformer_2") or folder.index.get("boundary_ratio") is not None:
            raise UnsupportedModel(f"{folder.path}: Wan with two transformers is not supported")
        if folder.index.get("expand_timesteps"):
            raise UnsupportedModel(f"{folder.path}: Wan with expanded timesteps is not supported")

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression, also of VAEs in Wan 2.2's style, and patch size."""
        vae, patch = folder.config("vae"), folder.config("transformer")["patch_size"]
        side = vae.get("scale_factor_spatial", 8) * patch[1]
        return Patch(side, vae.get("scale_factor_temporal", 4))

    def count_tokens(self, tokenizer: Any, text: str) -> int:
        """Count after the cleaning that Wan's encoder does first."""
        from diffusers.pipelines.wan.pipeline_wan import prompt_clean

        return super().count_tokens(tokenizer, prompt_clean(text))

    def fit_stub(self, name: str, stub: Any) -> None:
        """Let the blocks' rule, 2 to the number of samplings, give the VAE's true factors.

        The blocks derive compression from ``temperal_downsample``, which leaves out the
        patches of VAEs in Wan 2.2's style; the classic pipeline reads the configuration.
        """
        if name == "vae":
            spatial = int(stub.config.scale_factor_spatial).bit_length() - 1
            temporal = int(stub.config.scale_factor_temporal).bit_length() - 1
            stub.temperal_downsample = [False] * (spatial - temporal) + [True] * temporal
