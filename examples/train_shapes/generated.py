"""Latents as the transformer makes them, each with the clip it should have made.

A decoder trained on exact latents has never seen a transformer's mistakes. Here real latents are
noised part of the way and denoised by the transformer under guidance, as in sampling: what comes
back still shows the same clip, with the transformer's typical errors in it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import whole_clip
from clips import draw_clips
from diffusers import WanPipeline
from networks import embed, latent_statistics

__all__ = ["GENERATED_KINDS", "GeneratedKind", "GeneratedPool"]

STEPS, GUIDANCE_SCALE, TEXT_LENGTH = 12, 4.0, 16
FIRST_STEPS = (4, 5, 6, 7)
"""Where in the 12 steps to start: early enough for errors, late enough to stay with the clip."""
CHUNK = 20


@dataclass(frozen=True)
class GeneratedKind:
    """One geometry: how many clips to make, how many to train on at once, and how often."""

    num_frames: int
    size: int
    count: int
    batch: int
    share: float


GENERATED_KINDS = (
    GeneratedKind(1, 48, count=600, batch=16, share=0.14),
    GeneratedKind(1, 64, count=200, batch=10, share=0.07),
    GeneratedKind(1, 96, count=100, batch=4, share=0.06),
    GeneratedKind(9, 48, count=400, batch=4, share=0.30),
    GeneratedKind(9, 64, count=200, batch=2, share=0.14),
    GeneratedKind(9, 96, count=80, batch=1, share=0.10),
    GeneratedKind(17, 48, count=160, batch=2, share=0.12),
    GeneratedKind(17, 64, count=60, batch=1, share=0.07),
)


class GeneratedPool:
    """Pairs of generated latents and true clips.

    Parameters
    ----------
    pipeline : WanPipeline
        The trained model.
    rng : random.Random
        Source of the clips.
    kinds : sequence of GeneratedKind
        What to make.
    """

    def __init__(
        self,
        pipeline: WanPipeline,
        rng: random.Random,
        kinds: Sequence[GeneratedKind] = GENERATED_KINDS,
    ) -> None:
        self._pipeline, self._rng, self._kinds = pipeline, rng, tuple(kinds)
        self._pairs = {kind: self._make(kind) for kind in self._kinds}

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch of one geometry: latents for the decoder, and the clips they should become."""
        kind = self._rng.choices(self._kinds, [kind.share for kind in self._kinds])[0]
        latents, video = self._pairs[kind]
        chosen = torch.randint(kind.count, (kind.batch,))
        return latents[chosen], video[chosen]

    def _make(self, kind: GeneratedKind) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = [
            self._pair(kind, min(CHUNK, kind.count - done)) for done in range(0, kind.count, CHUNK)
        ]
        latents, video = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        return latents, video

    @torch.no_grad()
    def _pair(self, kind: GeneratedKind, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        parts = self._pipeline
        clips, video = draw_clips(self._rng, count, kind.num_frames, kind.size)
        mean, deviation = latent_statistics(parts.vae)
        exact = (whole_clip.encode(parts.vae, video)[0] - mean) / deviation
        text = [clip.scene.prompt for clip in clips]
        prompts = embed(parts.tokenizer, parts.text_encoder, text + [""] * count, TEXT_LENGTH)
        first = self._rng.choice(FIRST_STEPS)
        parts.scheduler.set_timesteps(STEPS)
        level = parts.scheduler.sigmas[first]
        latents = (1 - level) * exact + level * torch.randn_like(exact)
        for timestep in parts.scheduler.timesteps[first:]:
            both = torch.cat([latents, latents])
            output = parts.transformer(both, timestep.expand(2 * count), prompts, return_dict=False)
            wanted, unprompted = output[0].chunk(2)
            velocity = unprompted + GUIDANCE_SCALE * (wanted - unprompted)
            latents = parts.scheduler.step(velocity, timestep, latents, return_dict=False)[0]
        return latents * deviation + mean, video
