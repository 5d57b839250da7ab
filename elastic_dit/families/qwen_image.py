"""Qwen-Image text-to-image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.sequence import IMAGE, TEXT, SequencePlan, SequenceShape
from elastic_dit.families.spec import FamilySpec
from elastic_dit.request import GenerationRequest

__all__ = ["QwenImageFamily"]

MAX_SEQUENCE_LENGTH = 512
"""Longest prompt, in tokens; prompts are not padded, so shorter ones cost less."""
DEFAULTS = RequestDefaults(
    width=1328, height=1328, num_frames=1, fps=1, num_inference_steps=50, guidance_scale=4.0
)
LIMITS = {"max_side": 2048, "max_pixels": 1664 * 1664, "max_frames": 1, "max_steps": 200}
PACKING = 2
"""Latents are packed in squares of this side before the transformer."""


class QwenImageFamily(FamilySpec):
    """Qwen-Image; its guidance is true classifier-free guidance with a norm rescale."""

    name = "qwen_image"
    pipelines = ("QwenImagePipeline",)
    blocks = "QwenImageAutoBlocks"
    sequence = SequencePlan(attention={"transformer_blocks.*.attn": (TEXT, IMAGE)})

    def card(self, name: str, folder: ModelFolder, hints: ServingHints) -> ModelCard:
        """Sizes from the VAE's compression and the packing of latents."""
        compression = 2 ** len(folder.config("vae")["temperal_downsample"])
        limits = {
            **LIMITS,
            "size_multiple": compression * PACKING,
            "max_prompt_tokens": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
        }
        return self._card(name, hints, limits, DEFAULTS)

    def inputs(self, request: GenerationRequest, hints: ServingHints) -> dict[str, Any]:
        """Images have no frames to set."""
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": hints.max_sequence_length or MAX_SEQUENCE_LENGTH,
            "height": request.height,
            "width": request.width,
            "num_inference_steps": request.num_inference_steps,
        }

    def sequence_shape(
        self, request: GenerationRequest, folder: ModelFolder, count_tokens: Callable[[str], int]
    ) -> SequenceShape:
        """Packed latents and the text, which differs between the guidance branches."""
        side = 2 ** len(folder.config("vae")["temperal_downsample"]) * PACKING
        texts = [request.prompt]
        if request.guidance_scale > 1.0:
            texts.append(request.negative_prompt)
        return SequenceShape(
            heads=folder.config("transformer")["num_attention_heads"],
            tokens=(request.height // side) * (request.width // side),
            text_tokens=min(map(count_tokens, texts)),
        )

    def count_tokens(self, tokenizer: Any, text: str) -> int:
        """Tokens that the transformer sees: of the chat template only what follows its prefix."""
        from diffusers.modular_pipelines.qwenimage import prompt_templates

        whole = super().count_tokens(
            tokenizer, prompt_templates.QWENIMAGE_PROMPT_TEMPLATE.format(text)
        )
        return int(whole - prompt_templates.QWENIMAGE_PROMPT_TEMPLATE_START_IDX)
