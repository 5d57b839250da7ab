"""Situations at random, to train a predictor on and to hold out; and those of the papers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from elastic_dit.predict.examples import Situation
from elastic_dit.predict.split import balanced_split
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.request import Stage

__all__ = ["HELD_OUT_SEED", "TRAINING_SEED", "draw_situations", "paper_situations"]

TRAINING_SEED = 1
HELD_OUT_SEED = 3
"""Of the draw that nothing was trained, chosen or tuned on."""

_SIZES = ((512, 512, 1), (1024, 1024, 1), (832, 480, 49), (832, 480, 81), (1280, 720, 81))
"""Width, height and frames of images and videos that models are asked for."""
_STEPS = (1, 2, 4, 8, 20, 30, 50)
"""Distilled models need few, others many."""
_GPUS = (4, 6, 8, 10, 12, 16, 24)
_MOST_PARTS = 4
_OTHER_STEPS = 0.5
"""How often a part of a mix has other steps than the one before."""
_LOGS = {Stage.DIT: (math.log(1 / 3), math.log(30)), Stage.DECODER: (math.log(1 / 5), math.log(8))}
"""Mean seconds over the encoder's, as logarithms from and to."""
_TWO_KINDS = 0.25
"""Part of the situations with GPUs of two kinds."""
_DEMAND = (0.5, 1.3)
"""Arrivals over what the closed form's split can serve."""
_UNKNOWN_RATE = 0.1
"""Part of the situations in which the queue is never empty."""


def draw_situations(count: int, seed: int) -> list[Situation]:
    """Mixes of shapes and steps, models, GPUs and rates at random, deterministic by seed.

    Every stage is the bottleneck in some: a mean request needs between a third and thirty times
    as much of the DiT as of the encoder, and between a fifth and eight times of the decoder.

    Parameters
    ----------
    count : int
    seed : int
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
    """Some sizes and steps, with stage times as power laws of them."""
    power = dice.uniform(1.0, 1.4)
    steps = dice.choice(_STEPS)
    drawn = []
    for _ in range(dice.randint(1, _MOST_PARTS)):
        if dice.random() < _OTHER_STEPS:
            steps = dice.choice(_STEPS)
        drawn.append((dice.choice(_SIZES), steps, dice.randint(1, 10)))
    work = {
        Stage.ENCODER: [1.0 for _ in drawn],
        Stage.DIT: [steps * math.prod(size) ** power for size, steps, _ in drawn],
        Stage.DECODER: [math.prod(size) for size, _, _ in drawn],
    }
    means = {Stage.ENCODER: 1.0, **{s: math.exp(dice.uniform(*log)) for s, log in _LOGS.items()}}
    scales = {
        stage: means[stage] * sum(share for *_, share in drawn)
        / sum(share * each for each, (*_, share) in zip(work[stage], drawn, strict=True))
        for stage in Stage
    }  # fmt: skip
    return [
        MixPart(
            share=share,
            seconds={stage: scales[stage] * work[stage][index] for stage in Stage},
            width=size[0],
            height=size[1],
            num_frames=size[2],
            num_inference_steps=steps,
        )
        for index, (size, steps, share) in enumerate(drawn)
    ]


def paper_situations() -> Iterator[tuple[str, Situation]]:
    """DisagFusion's traces on A10 (Figure 14), stage times as they follow from its throughputs."""
    for steps, dit_s in ((4, 73.5), (1, 18.4)):
        for gpus in (8, 16):
            seconds = {Stage.ENCODER: 5.45, Stage.DIT: dit_s, Stage.DECODER: 9.7}
            workload = Workload(rate_hz=0.0, stage_seconds=seconds)
            yield f"DisagFusion, {steps}-step, {gpus} A10", Situation(workload, {"A10": gpus})
