"""Trains the video autoencoder: a coarse phase, a fine phase, and one for the decoder alone."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import whole_clip
from clips import Clip, draw_clips
from diffusers import AutoencoderKLWan
from evaluate import to_frames
from networks import build_autoencoder, latent_statistics
from optimisation import Average, Optimisers
from torch import nn

from elastic_dit.judging import judge, tally

__all__ = ["PHASES", "Phase", "train_autoencoder"]

KL_WEIGHT = 5e-4
SHAPE_WEIGHT = 3.0
"""Extra weight of pixels on the shape, over those of the plain ground."""
SQUARE_WEIGHT = 2.0
WARM_UP_STEPS = 20
AVERAGE_DECAY = 0.99
WEIGHT_DECAY = 0.01
LEAST_MUON_CHANNELS = 8
STATISTICS_CLIPS = ((9, 48, 48), (9, 64, 32), (9, 96, 12), (1, 64, 32))
EVALUATION_CLIPS = 48
EVALUATION_BATCH = 8


@dataclass(frozen=True)
class Source:
    """One kind of training batch: `crop` x `crop` windows around the shape, where the edges are."""

    share: float
    num_frames: int
    size: int
    crop: int
    batch: int


@dataclass(frozen=True)
class Phase:
    """What to train, on what, for how long, and how fast.

    Parameters
    ----------
    sources : tuple of Source
        Drawn from at each step, by share.
    steps : int
        Number of steps.
    muon_rate, adam_rate : float
        Full learning rates.
    hold : float
        Share of the steps at the full rate; then it falls linearly.
    end : float
        Multiplier of the rates at the last step.
    decoder_only : bool
        Leave encoder and latent statistics as they are, so that a trained transformer stays valid.
    latent_noise : float
        Most noise to add to the latents, in their standard deviations: a transformer's latents
        are not exact either, and the decoder must bear that.
    """

    sources: tuple[Source, ...]
    steps: int
    muon_rate: float
    adam_rate: float
    hold: float
    end: float = 0.01
    decoder_only: bool = False
    latent_noise: float = 0.0


PHASES = {
    "coarse": Phase(
        (
            Source(0.42, 9, 32, 24, 16),
            Source(0.16, 9, 32, 32, 9),
            Source(0.14, 9, 48, 24, 16),
            Source(0.12, 9, 64, 24, 16),
            Source(0.08, 17, 32, 24, 9),
            Source(0.05, 9, 48, 48, 4),
            Source(0.03, 5, 64, 64, 4),
        ),
        steps=800,
        muon_rate=5e-3,
        adam_rate=2e-3,
        hold=0.5,
        end=0.34,
    ),
    "fine": Phase(
        (
            Source(0.32, 9, 64, 32, 9),
            Source(0.20, 9, 48, 32, 9),
            Source(0.15, 9, 96, 32, 9),
            Source(0.13, 9, 64, 64, 3),
            Source(0.10, 17, 64, 32, 5),
            Source(0.07, 9, 48, 48, 4),
            Source(0.03, 5, 96, 96, 2),
        ),
        steps=350,
        muon_rate=3e-3,
        adam_rate=1.2e-3,
        hold=0.0,
    ),
    "decoder": Phase(
        (
            Source(0.40, 9, 48, 48, 4),
            Source(0.10, 1, 48, 48, 16),
            Source(0.08, 17, 48, 48, 2),
            Source(0.16, 9, 64, 64, 2),
            Source(0.06, 1, 64, 64, 10),
            Source(0.05, 17, 64, 40, 3),
            Source(0.10, 9, 96, 48, 4),
            Source(0.05, 1, 96, 96, 4),
        ),
        steps=3900,
        muon_rate=2e-3,
        adam_rate=6e-4,
        hold=0.3,
        decoder_only=True,
        latent_noise=0.35,
    ),
}


def train_autoencoder(
    folder: Path,
    phase: Phase,
    seed: int,
    start: Path | None = None,
    report_every: int = 500,
) -> None:
    """Run one phase and save the averaged weights.

    Parameters
    ----------
    folder : pathlib.Path
        Where the autoencoder is saved, in diffusers' layout.
    phase : Phase
        What to do.
    seed : int
        Of the data and of the weights.
    start : pathlib.Path, optional
        An autoencoder to go on from; a fresh one if not given.
    report_every : int
        Steps between quality reports.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = AutoencoderKLWan.from_pretrained(start) if start else build_autoencoder()
    model.float().train()
    trained = _trained_modules(model, phase)
    optimisers = _optimisers(trained, phase)
    average = Average(trained, AVERAGE_DECAY)
    began = time.monotonic()
    for step in range(phase.steps):
        loss = _loss(model, phase, rng)
        optimisers.step(loss, _multiplier(step, phase))
        average.update()
        if (step + 1) % report_every == 0 or step + 1 == phase.steps:
            with average.applied():
                print(f"step {step + 1}, {time.monotonic() - began:.0f} s, loss {loss.item():.4f}")
                print(f"  {reconstruction_report(model, 9, 48)}", flush=True)
                model.save_pretrained(folder)
    with average.applied():
        if not phase.decoder_only:
            _set_latent_statistics(model, rng)
        model.save_pretrained(folder)


def reconstruction_report(
    model: AutoencoderKLWan, num_frames: int, size: int, count: int = EVALUATION_CLIPS
) -> str:
    """How much of the ground truth survives encoding and decoding, in words."""
    clips, video = draw_clips(random.Random(size), count, num_frames, size)
    with torch.no_grad():
        decoded = torch.cat(
            [
                whole_clip.decode(model, whole_clip.encode(model, part)[0]).clamp(-1, 1)
                for part in video.split(EVALUATION_BATCH)
            ]
        )
    noise = float(((decoded - video) / 2).square().mean())
    frames = to_frames(decoded.permute(0, 2, 3, 4, 1).numpy() / 2 + 0.5)
    counts = tally([judge(clip) for clip in frames], [clip.scene for clip in clips])
    return f"{num_frames} frames of {size} px: {-10 * np.log10(noise):.2f} dB, {counts}"


def _trained_modules(model: AutoencoderKLWan, phase: Phase) -> list[nn.Module]:
    if not phase.decoder_only:
        return [model]
    model.requires_grad_(False)
    trained = [model.decoder, model.post_quant_conv]
    for module in trained:
        module.requires_grad_(True)
    return trained


def _optimisers(trained: Sequence[nn.Module], phase: Phase) -> Optimisers:
    muon: list[nn.Parameter] = []
    adam: list[nn.Parameter] = []
    for module in trained:
        for parameter in module.parameters():
            kernel = parameter.ndim >= 4 and parameter.shape[0] >= LEAST_MUON_CHANNELS
            (muon if kernel else adam).append(parameter)
    decay = 0.0 if phase.decoder_only else WEIGHT_DECAY
    return Optimisers(muon, adam, phase.muon_rate, phase.adam_rate, decay)


def _multiplier(step: int, phase: Phase) -> float:
    progress = step / phase.steps
    fall = max(0.0, (progress - phase.hold) / (1 - phase.hold))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (1 - (1 - phase.end) * fall)


def _loss(model: AutoencoderKLWan, phase: Phase, rng: random.Random) -> torch.Tensor:
    source = rng.choices(phase.sources, [source.share for source in phase.sources])[0]
    clips, video = draw_clips(rng, source.batch, source.num_frames, source.size)
    ground = video[..., :1, :1]
    if source.crop < source.size:
        video = _around_shapes(rng, clips, video, source.crop)
    with torch.set_grad_enabled(not phase.decoder_only):
        mean, log_variance = whole_clip.encode(model, video)
    latents = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    if phase.latent_noise:
        # Squared, so that most clips get little.
        amount = torch.rand(len(latents), 1, 1, 1, 1).square() * phase.latent_noise
        latents = latents + amount * latent_statistics(model)[1] * torch.randn_like(latents)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)
    decoded = whole_clip.decode(model, latents)
    return _pixel_loss(decoded, video, ground) + KL_WEIGHT * divergence.mean()


def _pixel_loss(decoded: torch.Tensor, video: torch.Tensor, ground: torch.Tensor) -> torch.Tensor:
    """Error of decoded clips, in which the shape counts more than the plain ground.

    Parameters
    ----------
    decoded, video : torch.Tensor
        Shape ``(B, 3, T, H, W)``, from -1 to 1.
    ground : torch.Tensor
        Colour of the ground, shape ``(B, 3, T, 1, 1)``.
    """
    error = decoded - video
    distance = (video - ground).abs().amax(1, keepdim=True).clamp(0, 1)
    weight = 1 + SHAPE_WEIGHT * distance
    return (weight * (error.abs() + SQUARE_WEIGHT * error.square())).mean()


def _around_shapes(
    rng: random.Random, clips: Sequence[Clip], video: torch.Tensor, crop: int
) -> torch.Tensor:
    """A window of each clip, near the shape's place at a random moment."""
    size, windows = video.shape[-1], []
    for clip, frames in zip(clips, video, strict=True):
        centre, _ = clip.trajectory.at(rng.random())
        left, top = (
            round(min(max(0.0, (place * size) + rng.uniform(-1, 0) * crop), size - crop))
            for place in centre
        )
        windows.append(frames[..., top : top + crop, left : left + crop])
    return torch.stack(windows)


def _set_latent_statistics(model: AutoencoderKLWan, rng: random.Random) -> None:
    """Measure the latents' mean and deviation by channel; the pipeline normalises with them."""
    samples = []
    with torch.no_grad():
        for num_frames, size, count in STATISTICS_CLIPS:
            _, video = draw_clips(rng, count, num_frames, size)
            samples.append(whole_clip.encode(model, video)[0].transpose(0, 1).flatten(1))
    values = torch.cat(samples, dim=1)
    model.register_to_config(
        latents_mean=[round(value, 4) for value in values.mean(1).tolist()],
        latents_std=[round(value, 4) for value in values.std(1).tolist()],
    )
