"""What fake engines make: numbers that depend on the request alone, step by step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_dit.engine.protocol import SNAPSHOT, Payload
from elastic_dit.request import GenerationRequest

__all__ = ["begin_or_resume", "decode", "embed", "fake_frames", "step_on"]

LATENT_CHANNELS = 4
EMBED_WIDTH = 8


def fake_frames(request: GenerationRequest) -> NDArray[np.uint8]:
    """Frames that a `FakeEngine` makes for `request`, computed without one.

    Returns
    -------
    array of uint8, shape [num_frames, height, width, 3]
    """
    state = _begin(request, embed(request))
    for _ in range(request.num_inference_steps):
        state = step_on(request, state)
    return decode(request, state["latents"])


def _rng(*parts: object) -> np.random.Generator:
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def embed(request: GenerationRequest) -> NDArray[np.float32]:
    """What the encoder makes of prompt and picture, shape [1, words, EMBED_WIDTH]."""
    picture = () if request.image is None else (request.image.digest,)
    words = (*request.prompt.split(), request.negative_prompt, *picture)
    rows = [_rng("word", word).standard_normal(EMBED_WIDTH, np.float32) for word in words]
    return np.stack(rows)[None]


def begin_or_resume(request: GenerationRequest, inputs: Payload) -> dict[str, Any]:
    """State of a snapshot, or that before the first step."""
    return dict(inputs.get(SNAPSHOT) or _begin(request, inputs["prompt_embeds"]))


def _begin(request: GenerationRequest, embeds: NDArray[np.float32]) -> dict[str, Any]:
    side = [max(1, side // 16) for side in (request.height, request.width)]
    shape = (1, LATENT_CHANNELS, request.num_frames, *side)
    noise = _rng("noise", request.seed).standard_normal(shape, np.float32)
    return {"step": 0, "latents": noise, "prompt_embeds": embeds}


def step_on(request: GenerationRequest, state: Mapping[str, Any]) -> dict[str, Any]:
    """State after one more step."""
    step, latents, embeds = state["step"], state["latents"], state["prompt_embeds"]
    drift = _rng("step", request.seed, step).standard_normal(LATENT_CHANNELS, np.float32)
    drift += np.float32(request.guidance_scale) * embeds.mean()
    latents = np.float32(0.5) * latents + drift[None, :, None, None, None]
    return {"step": step + 1, "latents": latents, "prompt_embeds": embeds}


def decode(request: GenerationRequest, latents: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Frames of latents, shape [num_frames, height, width, 3]."""
    small = np.moveaxis(latents[0, :3], 0, -1)  # [T, h, w, 3]
    grey = np.clip(128 + 32 * small, 0, 255).astype(np.uint8)
    tall = grey.repeat(-(-request.height // grey.shape[1]), axis=1)[:, : request.height]
    return tall.repeat(-(-request.width // grey.shape[2]), axis=2)[:, :, : request.width]
