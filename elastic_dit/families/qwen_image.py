"""Qwen-Image text-to-image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.sequence import IMAGE, TEXT, Patch, SequencePlan
from elastic_dit.families.spec import FamilySpec, Limits
from elastic_dit.request import GenerationRequest

__all__ = ["QwenImageFamily"]

PACKING = 2
"""Latents are packed in squares of this side before the transformer."""


class QwenImageFamily(FamilySpec):
    """Qwen-Image; its guidance is true classifier-free guidance with a norm rescale.

    Prompts are not padded, so shorter ones cost less.
    """

    name = "qwen_image"
    pipelines = ("QwenImagePipeline",)
    blocks = "QwenImageAutoBlocks"
    defaults = RequestDefaults(
        width=1328, height=1328, num_frames=1, fps=1, num_inference_steps=50, guidance_scale=4.0
    )
    limits = Limits(max_side=2048, max_pixels=1664 * 1664)
    max_sequence_length = 512
    longest_text = 1024
    fields = ("negative_prompt",)
    sequence = SequencePlan(attention={"transformer_blocks.*.attn": (TEXT, IMAGE)})

    def patch(self, folder: ModelFolder) -> Patch:
        """VAE compression and the packing of latents."""
        return Patch(2 ** len(folder.config("vae")["temperal_downsample"]) * PACKING)

    def text_tokens(
        self,
        request: GenerationRequest,
        folder: ModelFolder,  # noqa: ARG002
        count_tokens: Callable[[str], int],
    ) -> int:
        """The shorter text of the guidance branches."""
        texts = [request.prompt]
        if request.guidance_scale > 1.0:
            texts.append(request.negative_prompt)
        return min(map(count_tokens, texts))

    def count_tokens(self, tokenizer: Any, text: str) -> int:
        """Tokens that the transformer sees: of the chat template only what follows its prefix."""
        from diffusers.modular_pipelines.qwenimage import prompt_templates

        whole = super().count_tokens(
            tokenizer, prompt_templates.QWENIMAGE_PROMPT_TEMPLATE.format(text)
        )
        return int(whole - prompt_templates.QWENIMAGE_PROMPT_TEMPLATE_START_IDX)
