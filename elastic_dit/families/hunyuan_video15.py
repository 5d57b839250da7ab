"""HunyuanVideo 1.5 text-to-video: two text encoders whose padding is masked in joint attention."""

from __future__ import annotations

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.hunyuan_video import hunyuan_patch
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits

__all__ = ["HunyuanVideo15Family"]


class HunyuanVideo15Family(FamilySpec):
    """HunyuanVideo 1.5 text-to-video."""

    name = "hunyuan_video15"
    pipelines = ("HunyuanVideo15Pipeline",)
    blocks = "HunyuanVideo15AutoBlocks"
    stubs = ("vae", "transformer")
    defaults = RequestDefaults(
        width=848, height=480, num_frames=121, fps=24, num_inference_steps=50, guidance_scale=6.0
    )
    limits = Limits(max_side=1280, max_pixels=1280 * 720, max_frames=241)
    max_sequence_length = 1000
    fields = ("negative_prompt", "num_frames")
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn": (IMAGE, TEXT)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)},
            "transformer_blocks.*": {"attention_mask": Cut(1, 2)},
            "rope": {0: Cut(0, 2, output=True), 1: Cut(0, 2, output=True)},
        },
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """As of 1.0."""
        return hunyuan_patch(folder)

    def text_length(self, hints: ServingHints) -> int:  # noqa: ARG002
        """The blocks pad prompts to this and to nothing else."""
        return self.max_sequence_length
