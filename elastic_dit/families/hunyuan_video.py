"""HunyuanVideo text-to-video: a classic pipeline, guidance is an input of the transformer."""

from __future__ import annotations

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["HunyuanVideoFamily", "hunyuan_patch"]


class HunyuanVideoFamily(FamilySpec):
    """HunyuanVideo 1.0; prompts are padded to their full length, and the padding is masked."""

    name = "hunyuan_video"
    pipelines = ("HunyuanVideoPipeline",)
    encode_returns = ("prompt_embeds", "pooled_prompt_embeds", "prompt_attention_mask")
    defaults = RequestDefaults(
        width=1280, height=720, num_frames=129, fps=24, num_inference_steps=50, guidance_scale=6.0
    )
    limits = Limits(max_side=1280, max_pixels=1280 * 720, max_frames=129)
    size_multiple = 16
    max_sequence_length = 256
    fields = ("num_frames", "guidance_scale")
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

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and patch size, in space and time."""
        return hunyuan_patch(folder)


def hunyuan_patch(folder: ModelFolder) -> Patch:
    """What one token stands for in HunyuanVideo's models, whose configurations speak alike."""
    vae, transformer = folder.config("vae"), folder.config("transformer")
    side = vae["spatial_compression_ratio"] * transformer["patch_size"]
    return Patch(side, vae["temporal_compression_ratio"], transformer["patch_size_t"])
