"""CogVideoX text-to-video: no modular blocks, and a stochastic sampler."""

from __future__ import annotations

from collections.abc import Callable

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits
from elastic_dit.request import GenerationRequest

__all__ = ["CogVideoXFamily"]


class CogVideoXFamily(FamilySpec):
    """CogVideoX in all sizes; prompts are padded to their full length."""

    name = "cogvideox"
    pipelines = ("CogVideoXPipeline",)
    encode_returns = ("prompt_embeds", "negative_prompt_embeds")
    defaults = RequestDefaults(
        width=720, height=480, num_frames=49, fps=8, num_inference_steps=50, guidance_scale=6.0
    )
    limits = Limits(max_side=1360, max_pixels=1360 * 768, max_frames=81)
    max_sequence_length = 226
    fields = ("negative_prompt", "num_frames", "guidance_scale")
    sequence = SequencePlan(
        attention={"transformer_blocks.*.attn1": (TEXT, IMAGE)},
        cuts={
            "transformer_blocks.0": {IMAGE: Cut(1, 3), TEXT: Cut(1, 3)},
            "transformer_blocks.*": {"image_rotary_emb": (Cut(0, 2), Cut(0, 2))},
        },
    )

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and patch size; 1.5 also joins latents in time."""
        vae, transformer = folder.config("vae"), folder.config("transformer")
        side = transformer["patch_size"] * 2 ** (len(vae["block_out_channels"]) - 1)
        depth = transformer.get("patch_size_t") or 1
        return Patch(side, vae["temporal_compression_ratio"], depth)

    def frame_multiple(self, patch: Patch) -> int:
        """The VAE decodes latents two by two, its first frame alone only in an odd count."""
        return 2 * patch.frames

    def text_tokens(
        self,
        request: GenerationRequest,  # noqa: ARG002
        folder: ModelFolder,
        count_tokens: Callable[[str], int],  # noqa: ARG002
    ) -> int:
        """What the model was trained with."""
        trained = folder.config("transformer").get("max_text_seq_length")
        return int(trained or self.max_sequence_length)
