"""Situations at random, to train a predictor on and to hold out; and those of the papers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from elastic_dit.predict.examples import Situation
from elastic_dit.predict.split import balanced_split
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.request import Stage

__all__ = ["draw_situations", "paper_situations"]

_SIZES = ((512, 512, 1), (1024, 1024, 1), (832, 480, 49), (832, 480, 81), (1280, 720, 81))
"""Width, height and frames of images and videos that models are asked for."""
_STEPS = (1, 2, 4, 8, 20, 30, 50)
"""Distilled models need few, others many."""
_GPUS = (4, 6, 8, 10, 12, 16, 24)
_MOST_PARTS = 4
_TWO_KINDS = 0.25
"""Part of the situations with GPUs of two kinds."""
_DEMAND = (0.5, 1.3)
"""Arrivals over what the closed form's split can serve."""
_UNKNOWN_RATE = 0.1
"""Part of the situations in which the queue is never empty."""


@dataclass(frozen=True, slots=True)
class _Model:
    """Seconds of a model's stages as power laws of pixels; they share no units with each other."""

    encoder_s: float
    step_s: float
    step_power: float
    decoder_s: float

    def seconds(self, size: tuple[int, int, int], steps: int) -> dict[Stage, float]:
        """Of each stage of one request."""
        pixels = math.prod(size) / 1e6
        return {
            Stage.ENCODER: self.encoder_s,
            Stage.DIT: steps * self.step_s * pixels**self.step_power,
            Stage.DECODER: self.decoder_s * pixels,
        }


def draw_situations(count: int, seed: int) -> list[Situation]:
    """Mixes of shapes and steps, models, GPUs and rates at random, deterministic by seed.

    Stage times are scaled so that every stage is the bottleneck in some: a mean request needs
    seconds of the encoder, and between a tenth and a hundred times as much of the others.
    """
    dice = random.Random(seed)
    return [_draw(dice) for _ in range(count)]


def _draw(dice: random.Random) -> Situation:
    gpus = dice.choice(_GPUS)
    kinds: Mapping[str, int] = {"": gpus}
    speeds: Mapping[str, float] = {}
    if dice.random() < _TWO_KINDS:
        slow = dice.randint(1, gpus - 1)
        kinds, speeds = {"": gpus - slow, "slow": slow}, {"slow": dice.uniform(0.3, 0.9)}
    workload = Workload.of_mix(0.0, _draw_mix(dice), speeds=speeds)
    if dice.random() < _UNKNOWN_RATE:
        return Situation(workload, kinds)
    least = min(balanced_split(workload, kinds).rates_hz(workload).values())
    return Situation(replace(workload, rate_hz=dice.uniform(*_DEMAND) * least), kinds)


def _draw_mix(dice: random.Random) -> list[MixPart]:
    model = _Model(
        encoder_s=1.0,
        step_s=10 ** dice.uniform(-2.0, 0.0),
        step_power=dice.uniform(1.0, 1.4),
        decoder_s=10 ** dice.uniform(-1.5, 0.0),
    )
    steps = dice.choice(_STEPS)
    parts = []
    for _ in range(dice.randint(1, _MOST_PARTS)):
        size = dice.choice(_SIZES)
        if dice.random() < 0.5:
            steps = dice.choice(_STEPS)
        parts.append(
            MixPart(
                share=dice.randint(1, 10),
                seconds=model.seconds(size, steps),
                width=size[0],
                height=size[1],
                num_frames=size[2],
                num_inference_steps=steps,
            )
        )
    return parts


def paper_situations() -> Iterator[tuple[str, Situation]]:
    """DisagFusion's traces on A10 (Figure 14), stage times as they follow from its throughputs."""
    for steps, dit_s in ((4, 73.5), (1, 18.4)):
        for gpus in (8, 16):
            seconds = {Stage.ENCODER: 5.45, Stage.DIT: dit_s, Stage.DECODER: 9.7}
            workload = Workload(rate_hz=0.0, stage_seconds=seconds)
            yield f"DisagFusion, {steps}-step, {gpus} A10", Situation(workload, {"A10": gpus})
