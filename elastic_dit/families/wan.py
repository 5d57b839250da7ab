"""Wan 2.1 text-to-video and text-to-image, and everything saved as a ``WanPipeline`` like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["WanFamily"]

MAX_SEQUENCE_LENGTH = 512
"""Tokens that Wan's own weights were trained with; they are padded to it."""
DEFAULTS = RequestDefaults(
    width=832, height=480, num_frames=81, fps=16, num_inference_steps=50, guidance_scale=5.0
)
LIMITS = {"max_side": 1280, "max_pixels": 1280 * 720, "max_frames": 121, "max_steps": 200}


class WanFamily(FamilySpec):
    """Wan 2.1 T2V in all sizes."""

    name = "wan"
    pipelines = ("WanPipeline",)
    blocks = "WanBlocks"
    sequence = SequencePlan(attention={"blocks.*.attn1": (IMAGE,)})

    def check(self, folder: ModelFolder) -> None:
        """Refuse Wan 2.2: two transformers, or a timestep for each token."""
        if folder.component("transformer_2") or folder.index.get("boundary_ratio") is not None:
            raise UnsupportedModel(f"{folder.path}: Wan with two transformers is not supported")
        if folder.index.get("expand_timesteps"):
            raise UnsupportedModel(f"{folder.path}: Wan with expanded timesteps is not supported")

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from VAE compression and patch size, frames from temporal compression."""
        vae, transformer = folder.config("vae"), folder.config("transformer")
        limits = {
            **LIMITS,
            "size_multiple": vae.get("scale_factor_spatial", 8) * transformer["patch_size"][1],
            "frame_multiple": vae.get("scale_factor_temporal", 4),
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """Wan's names are the request's own."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_frames": request.num_frames,
            "num_inference_steps": request.num_inference_steps,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, _: Callable[[str], int]
    ) -> SequenceShape:
        """A token for each patch of latents; the text is whole on every GPU."""
        vae, transformer = folder.config("vae"), folder.config("transformer")
        side = vae.get("scale_factor_spatial", 8) * transformer["patch_size"][1]
        frames = 1 + (request.num_frames - 1) // vae.get("scale_factor_temporal", 4)
        tokens = frames * (request.height // side) * (request.width // side)
        return SequenceShape(heads=transformer["num_attention_heads"], tokens=tokens)

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
