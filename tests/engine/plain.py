"""The plain diffusers pipeline: what every schedule must equal."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from elastic_dit.request import GenerationRequest
from tests.tiny_models import TINY, TINY_TEXT

__all__ = ["plain_frames", "plain_latents"]


@cache
def _pipeline(model: str) -> Any:
    pipeline = TINY[model]()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _call(request: GenerationRequest, output_type: str) -> Any:
    guidance = "true_cfg_scale" if request.model == "qwen_image" else "guidance_scale"
    options: dict[str, Any] = {
        "prompt": request.prompt,
        "negative_prompt": request.negative_prompt,
        "max_sequence_length": TINY_TEXT[request.model],
        "height": request.height,
        "width": request.width,
        "num_inference_steps": request.num_inference_steps,
        guidance: request.guidance_scale,
        "generator": torch.Generator().manual_seed(request.seed),
        "output_type": output_type,
        "return_dict": False,
    }
    if request.model in _VIDEO:
        options["num_frames"] = request.num_frames
    if request.model == "pixart":
        options |= {"use_resolution_binning": False, "clean_caption": False}
    return _pipeline(request.model)(**options)[0]


_VIDEO = ("wan", "wan_euler", "cogvideox")


def plain_latents(request: GenerationRequest) -> torch.Tensor:
    """Latents as the pipeline gives them, unpacked where it packs them."""
    latents = _call(request, "latent")
    if request.model == "qwen_image":
        pipeline = _pipeline("qwen_image")
        size = request.height, request.width, pipeline.vae_scale_factor
        latents = pipeline._unpack_latents(latents, *size)
    return latents


def plain_frames(request: GenerationRequest) -> np.ndarray:
    """Frames [T, H, W, 3], uint8, by the rule of diffusers' ``numpy_to_pil``."""
    floats = _call(request, "np")
    return ((floats[0] if request.model in _VIDEO else floats) * 255).round().astype("uint8")
