"""Requests of the papers' sizes."""

from __future__ import annotations

from elastic_dit.cost.readers import FIGURE_17_FRAMES, FIGURE_17_STEPS, RESOLUTIONS
from elastic_dit.request import GenerationRequest


def request(width: int, height: int, num_frames: int, steps: int) -> GenerationRequest:
    return GenerationRequest.parse(
        request_id="r", model="m", prompt="a circle", width=width, height=height,
        num_frames=num_frames, fps=24, num_inference_steps=steps, guidance_scale=5.0, seed=0,
    )  # fmt: skip


def opensora(resolution: str) -> GenerationRequest:
    return request(*RESOLUTIONS[resolution], FIGURE_17_FRAMES, FIGURE_17_STEPS)
