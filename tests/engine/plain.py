"""The plain diffusers pipeline: what every schedule must equal."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from elastic_dit.request import GenerationRequest
from tests.tiny_models import TINY

__all__ = ["plain_frames", "plain_latents"]


@cache
def _pipeline(model: str) -> Any:
    pipeline = TINY[model]()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _call(request: GenerationRequest, output_type: str) -> Any:
    options: dict[str, Any] = {
        "prompt": request.prompt,
        "negative_prompt": request.negative_prompt,
        "height": request.height,
        "width": request.width,
        "num_inference_steps": request.num_inference_steps,
        "generator": torch.Generator().manual_seed(request.seed),
        "output_type": output_type,
    }
    if request.model == "qwen_image":
        options |= {"true_cfg_scale": request.guidance_scale, "max_sequence_length": 512}
    else:
        options |= {"guidance_scale": request.guidance_scale, "max_sequence_length": 32}
        options |= {"num_frames": request.num_frames}
    return _pipeline(request.model)(**options)


def plain_latents(request: GenerationRequest) -> torch.Tensor:
    """Latents as the pipeline gives them, unpacked where it packs them."""
    output = _call(request, "latent")
    if request.model == "qwen_image":
        pipeline = _pipeline("qwen_image")
        size = request.height, request.width, pipeline.vae_scale_factor
        return pipeline._unpack_latents(output.images, *size)
    return output.frames


def plain_frames(request: GenerationRequest) -> np.ndarray:
    """Frames [T, H, W, 3], uint8, by the rule of diffusers' ``numpy_to_pil``."""
    output = _call(request, "np")
    floats = output.images if request.model == "qwen_image" else output.frames[0]
    return (floats * 255).round().astype("uint8")
