"""A pool of encoded clips, kept fresh, so that the transformer does not wait for the encoder."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import whole_clip
from clips import draw_clips
from diffusers import AutoencoderKLWan
from networks import latent_statistics

from elastic_dit.judging.scenes import Scene

__all__ = ["KINDS", "Kind", "LatentPool"]

ENCODE_PIXELS = 12 * 9 * 64 * 64
"""Pixels to encode at once, which bounds the memory of filling the pool."""


@dataclass(frozen=True)
class Kind:
    """One geometry of clips to train on.

    Parameters
    ----------
    num_frames, size : int
        Frames, and pixels a side.
    batch : int
        Clips a step; chosen so that every kind's step has about the same number of tokens.
    pool : int
        Clips to keep encoded.
    share : float
        How often the kind is drawn.
    """

    num_frames: int
    size: int
    batch: int
    pool: int
    share: float


KINDS = (
    Kind(1, 48, batch=96, pool=640, share=0.09),
    Kind(1, 64, batch=64, pool=480, share=0.08),
    Kind(1, 96, batch=36, pool=320, share=0.09),
    Kind(9, 48, batch=56, pool=960, share=0.14),
    Kind(9, 64, batch=32, pool=800, share=0.17),
    Kind(9, 96, batch=14, pool=320, share=0.15),
    Kind(17, 48, batch=32, pool=400, share=0.08),
    Kind(17, 64, batch=18, pool=280, share=0.09),
    Kind(17, 96, batch=8, pool=120, share=0.11),
)


class LatentPool:
    """Normalised latents of random clips of each kind, with their scenes."""

    def __init__(
        self, autoencoder: AutoencoderKLWan, kinds: tuple[Kind, ...], rng: random.Random
    ) -> None:
        self._autoencoder, self._rng = autoencoder, rng
        self._mean, self._deviation = latent_statistics(autoencoder)
        self._oldest = dict.fromkeys(kinds, 0)
        self._scenes: dict[Kind, list[Scene]] = {}
        self._latents: dict[Kind, torch.Tensor] = {}
        for kind in kinds:
            chunk = max(1, ENCODE_PIXELS // (kind.num_frames * kind.size**2))
            parts = [
                self._encode(kind, min(chunk, kind.pool - done))
                for done in range(0, kind.pool, chunk)
            ]
            self._scenes[kind] = [scene for scenes, _ in parts for scene in scenes]
            self._latents[kind] = torch.cat([latents for _, latents in parts])

    def refresh(self, kind: Kind, count: int) -> None:
        """Replace the oldest clips of a kind by new ones."""
        scenes, latents = self._encode(kind, count)
        for scene, latent in zip(scenes, latents, strict=True):
            place = self._oldest[kind] % kind.pool
            self._scenes[kind][place], self._latents[kind][place] = scene, latent
            self._oldest[kind] += 1

    def draw(self, kind: Kind) -> tuple[list[Scene], torch.Tensor]:
        """A random batch: scenes, and latents ``(batch, 16, T', H / 8, W / 8)``."""
        places = torch.randint(kind.pool, (kind.batch,))
        scenes = self._scenes[kind]
        return [scenes[place] for place in places.tolist()], self._latents[kind][places]

    @torch.no_grad()
    def _encode(self, kind: Kind, count: int) -> tuple[list[Scene], torch.Tensor]:
        clips, video = draw_clips(self._rng, count, kind.num_frames, kind.size)
        mean, log_variance = whole_clip.encode(self._autoencoder, video)
        latents = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return [clip.scene for clip in clips], (latents - self._mean) / self._deviation
