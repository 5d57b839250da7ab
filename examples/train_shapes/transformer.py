"""Trains text encoder and diffusion transformer together, by flow matching on latents."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from clips import wording
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from evaluate import Settings, evaluate
from latents import KINDS, Kind, LatentPool
from networks import (
    SCHEDULE_SHIFT,
    build_text_encoder,
    build_tokenizer,
    build_transformer,
    embed,
)
from optimisation import Average, Optimisers, hold_then_cosine
from torch import nn
from torch.nn.functional import mse_loss
from transformers import PreTrainedTokenizerFast, UMT5EncoderModel

__all__ = ["Plan", "Trainer", "load_pipeline"]

MUON_RATE, ADAM_RATE = 5e-3, 2e-3
AVERAGE_DECAY = 0.995
WARM_UP_STEPS = 50
NO_PROMPT_SHARE = 0.12
"""How often the prompt is left out, which is what classifier-free guidance subtracts."""
TEXT_LENGTHS = (14, 16, 24, 48, 128, 512)
TEXT_LENGTH_SHARES = (0.45, 0.25, 0.17, 0.10, 0.025, 0.005)
"""The transformer attends to the zero rows after a prompt, so their number is trained too."""
UNIFORM_SHARE = 0.3
"""Share of noise levels drawn uniformly; the others are logit-normal."""
SHIFT_REFERENCE, SHIFT_POWER = 192, 0.25
"""Number of latents at which the schedule's shift holds, and how it grows with more of them."""
REFRESH_EVERY, REFRESHED_SHARE = 2, 6
REPORT_EVERY = 100
TIMESTEPS = 1000


@dataclass(frozen=True)
class Plan:
    """How long to train.

    Parameters
    ----------
    steps : int
        Steps in all, those before a resumption counted.
    hold : float
        Share of the steps at the full learning rate, before it falls.
    save_every : int
        Steps between checkpoints, each with a short quality report.
    seed : int
        Of data, weights and noise.
    evaluated : int
        Clips of each geometry in a quality report; 0 for none.
    kinds : tuple of Kind
        Geometries to train on.
    minutes : float, optional
        Ends this run after so long and lets the learning rate follow the clock instead of the
        steps: for machines whose speed nobody knows beforehand.
    rate : float
        Share of the usual learning rate, for a last stretch after it has fallen once.
    """

    steps: int
    hold: float = 0.45
    save_every: int = 1000
    seed: int = 0
    evaluated: int = 24
    kinds: tuple[Kind, ...] = KINDS
    minutes: float | None = None
    rate: float = 1.0

    def progress(self, steps: int, seconds: float) -> float:
        """Share of the training done, 1 at its end, after steps in all and seconds of this run."""
        by_clock = seconds / (60 * self.minutes) if self.minutes else 0.0
        by_steps = steps / self.steps if steps >= self.steps or not self.minutes else 0.0
        return max(by_clock, by_steps)


class Trainer:
    """Holds everything that training changes, and saves or restores it.

    Parameters
    ----------
    autoencoder : AutoencoderKLWan
        Trained; is not changed.
    plan : Plan
        How long, and on what.
    folder : pathlib.Path
        Where checkpoints go.
    """

    def __init__(self, autoencoder: AutoencoderKLWan, plan: Plan, folder: Path) -> None:
        torch.manual_seed(plan.seed)
        self.plan, self.folder, self.done = plan, folder, 0
        self.autoencoder = autoencoder.eval().requires_grad_(False)
        self.tokenizer: PreTrainedTokenizerFast = build_tokenizer()
        self.encoder: UMT5EncoderModel = build_text_encoder(len(self.tokenizer))
        self.transformer: WanTransformer3DModel = build_transformer()
        muon: list[nn.Parameter] = []
        adam: list[nn.Parameter] = []
        for name, parameter in self.transformer.named_parameters():
            matrix = parameter.ndim == 2 and name.startswith("blocks.")
            (muon if matrix else adam).append(parameter)
        adam += list(self.encoder.parameters())
        self.optimisers = Optimisers(muon, adam, MUON_RATE, ADAM_RATE)
        self.average = Average([self.transformer, self.encoder], AVERAGE_DECAY)

    @property
    def checkpoint(self) -> Path:
        """File that `save` writes."""
        return self.folder / "checkpoint.pt"

    def restore(self, file: Path) -> None:
        """Go on from a checkpoint."""
        state: dict[str, Any] = torch.load(file, weights_only=True)
        self.transformer.load_state_dict(state["transformer"])
        self.encoder.load_state_dict(state["encoder"])
        self.optimisers.load_state_dicts(state["optimisers"])
        self.average.values, self.average.updates = state["average"], state["updates"]
        self.done = state["step"]

    def save(self) -> None:
        """Write a checkpoint; a crash while writing leaves the one before intact."""
        state = {
            "transformer": self.transformer.state_dict(),
            "encoder": self.encoder.state_dict(),
            "optimisers": self.optimisers.state_dicts(),
            "average": self.average.values,
            "updates": self.average.updates,
            "step": self.done,
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def pipeline(self) -> WanPipeline:
        """A pipeline of the present modules; it shares their weights."""
        return WanPipeline(
            tokenizer=self.tokenizer,
            text_encoder=self.encoder,
            transformer=self.transformer,
            vae=self.autoencoder,
            scheduler=FlowMatchEulerDiscreteScheduler(
                num_train_timesteps=TIMESTEPS, shift=SCHEDULE_SHIFT
            ),
        )

    def train(self) -> None:
        """Train to the end of the plan, with checkpoints on the way."""
        plan, first = self.plan, self.done
        self.folder.mkdir(parents=True, exist_ok=True)
        # A resumed run must not see the first run's clips again.
        rng = random.Random(f"{plan.seed} {first}")
        torch.manual_seed(plan.seed + first)
        pool = LatentPool(self.autoencoder, plan.kinds, rng)
        losses: dict[str, list[float]] = defaultdict(list)
        began = time.monotonic()
        while (progress := plan.progress(self.done, time.monotonic() - began)) < 1:
            kind = rng.choices(plan.kinds, [kind.share for kind in plan.kinds])[0]
            if self.done % REFRESH_EVERY == 0:
                pool.refresh(kind, max(1, kind.batch // REFRESHED_SHARE))
            loss = self._loss(kind, pool, rng)
            warm_up = min(1.0, (self.done - first + 1) / WARM_UP_STEPS)
            rate = plan.rate * warm_up * hold_then_cosine(progress, plan.hold)
            self.optimisers.step(loss, rate)
            self.average.update()
            self.done += 1
            losses[f"{kind.num_frames}x{kind.size}"].append(loss.item())
            if self.done % REPORT_EVERY == 0:
                means = (f"{k} {sum(v) / len(v):.3f}" for k, v in sorted(losses.items()))
                elapsed = time.monotonic() - began
                print(f"step {self.done}, {elapsed:.0f} s, rate {rate:.2f}:", *means, flush=True)
                losses.clear()
            if self.done % plan.save_every == 0:
                self.save()
                self._report()
        if self.done > first and self.done % plan.save_every:
            self.save()
            self._report()

    def _loss(self, kind: Kind, pool: LatentPool, rng: random.Random) -> torch.Tensor:
        scenes, latents = pool.draw(kind)
        prompts = [
            "" if rng.random() < NO_PROMPT_SHARE else wording(scene, rng) for scene in scenes
        ]
        length = rng.choices(TEXT_LENGTHS, TEXT_LENGTH_SHARES)[0]
        text = embed(self.tokenizer, self.encoder, prompts, length)
        level = _noise_levels(latents)
        noise = torch.randn_like(latents)
        spread_level = level.view(-1, 1, 1, 1, 1)
        noisy = (1 - spread_level) * latents + spread_level * noise
        velocity = self.transformer(noisy, level * TIMESTEPS, text, return_dict=False)[0]
        return mse_loss(velocity, noise - latents)

    def _report(self) -> None:
        if not self.plan.evaluated:
            return
        settings = Settings(count=self.plan.evaluated)
        self.transformer.eval()
        with self.average.applied():
            pipeline = self.pipeline()
            pipeline.set_progress_bar_config(disable=True)
            for kind in self.plan.kinds:
                counts = evaluate(pipeline, kind.num_frames, kind.size, settings)
                print(f"  {kind.num_frames} frames of {kind.size} px: {counts}", flush=True)
        self.transformer.train()


def load_pipeline(autoencoder: Path, checkpoint: Path) -> WanPipeline:
    """A pipeline of an autoencoder and a checkpoint's averaged weights.

    Parameters
    ----------
    autoencoder : pathlib.Path
        Folder of the autoencoder; its decoder may have been tuned since the transformer's
        training, its encoder not.
    checkpoint : pathlib.Path
        File written by `Trainer.save`.
    """
    model = AutoencoderKLWan.from_pretrained(autoencoder)
    trainer = Trainer(model, Plan(steps=0), checkpoint.parent)
    trainer.restore(checkpoint)
    trainer.average.apply()
    trainer.transformer.eval()
    return trainer.pipeline()


def _noise_levels(latents: torch.Tensor) -> torch.Tensor:
    """Noise levels from 0 to 1, one a clip; larger clips get more noise."""
    count = len(latents)
    level = torch.where(
        torch.rand(count) < UNIFORM_SHARE, torch.rand(count), torch.sigmoid(torch.randn(count))
    )
    shift = SCHEDULE_SHIFT * (latents[0, 0].numel() / SHIFT_REFERENCE) ** SHIFT_POWER
    return shift * level / (1 + (shift - 1) * level)
