"""Requests to show and report."""

from __future__ import annotations

from elastic_dit.judging import evaluation_scenes
from elastic_dit.request import GenerationRequest


def request(
    number: int = 1, *, prompt: str | None = None, num_frames: int = 9
) -> GenerationRequest:
    """The `number`-th of a fixed list."""
    return GenerationRequest.parse(
        request_id=f"r{number}", model="shapes",
        prompt=prompt or evaluation_scenes(number)[-1].prompt,
        width=64, height=64, num_frames=num_frames, fps=8, num_inference_steps=12,
        guidance_scale=4.0, seed=number,
    )  # fmt: skip
