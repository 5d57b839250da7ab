"""Training data without end: random clips of moving shapes, and the many ways to describe them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch

from elastic_dit.judging.render import Trajectory, random_trajectory, render
from elastic_dit.judging.scenes import (
    BACKGROUND_WORDS,
    BACKGROUNDS,
    COLOUR_WORDS,
    COLOURS,
    MOTION_PHRASES,
    MOTIONS,
    RGB,
    SHAPE_WORDS,
    SHAPES,
    Scene,
)

__all__ = ["Clip", "draw_clip", "draw_clips", "to_video", "vocabulary", "wording"]

SPREAD = 0.2
"""How far place and size vary between clips: near the middle, which a tiny model learns far sooner
than places all over the frame."""
COLOUR_JITTER = 0.025
"""Largest deviation of a channel from the named colour."""
BACKGROUND_ODDS = (*BACKGROUNDS, "black")
"""Black twice: it is what an unnamed background means."""

PREFIXES = ("", "", "", "a video of", "a clip of", "a picture of", "an image of")
FILLERS = (
    *("please", "show", "me", "draw", "make", "nice", "little", "slowly", "smoothly", "the"),
    "bright",
)
UNKNOWN_WORD = "qqq"
"""Not in the vocabulary: stands for every word the model has not been taught."""
ARTICLE_SHARE = 0.85
BLACK_NAMED_SHARE = 0.5
STILL_NAMED_SHARE = 0.75
MOTION_FIRST_SHARE = 0.15
FILLED_SHARE = 0.12
MOST_FILLERS = 3


@dataclass(frozen=True)
class Clip:
    """A scene together with where exactly it takes place."""

    scene: Scene
    trajectory: Trajectory


def draw_clip(rng: random.Random, spread: float = SPREAD) -> Clip:
    """Draw a scene and a trajectory."""
    colour, background = rng.choice(tuple(COLOURS)), rng.choice(BACKGROUND_ODDS)
    while colour == background:
        colour, background = rng.choice(tuple(COLOURS)), rng.choice(BACKGROUND_ODDS)
    scene = Scene(colour, rng.choice(SHAPES), rng.choice(MOTIONS), background)
    return Clip(scene, random_trajectory(scene.motion, rng, spread))


def draw_clips(
    rng: random.Random, count: int, num_frames: int, size: int
) -> tuple[list[Clip], torch.Tensor]:
    """Draw clips and render them, with colours that vary a little.

    Returns
    -------
    clips : list of Clip
        What was drawn.
    video : torch.Tensor
        ``float32`` of shape ``(count, 3, num_frames, size, size)``, from -1 to 1.
    """
    clips = [draw_clip(rng) for _ in range(count)]
    frames = [
        render(
            clip.scene,
            num_frames,
            size,
            clip.trajectory,
            _jittered(COLOURS[clip.scene.colour], [_jitter(rng) for _ in range(3)]),
            # One jitter for all three channels: a background stays neutral.
            _jittered(BACKGROUNDS[clip.scene.background], [_jitter(rng)] * 3),
        )
        for clip in clips
    ]
    return clips, to_video(np.stack(frames))


def to_video(frames: np.ndarray) -> torch.Tensor:
    """``uint8`` frames ``(B, T, H, W, 3)`` as ``float32`` ``(B, 3, T, H, W)`` from -1 to 1."""
    return torch.from_numpy(frames).permute(0, 4, 1, 2, 3).float() / 127.5 - 1


def wording(scene: Scene, rng: random.Random) -> str:
    """One of the many prompts that ask for the scene."""
    words = rng.choice(_PATTERNS if rng.random() < MOTION_FIRST_SHARE else _PATTERNS[:1])
    parts = {
        "prefix": rng.choice(PREFIXES),
        "article": _article(scene, rng),
        "thing": f"{rng.choice(COLOUR_WORDS[scene.colour])} {rng.choice(SHAPE_WORDS[scene.shape])}",
        "motion": _motion(scene, rng),
        "ground": _ground(scene, rng),
    }
    prompt = [word for name in words for word in parts[name].split()]
    if rng.random() < FILLED_SHARE:
        for _ in range(rng.randint(1, MOST_FILLERS)):
            filler = rng.choice(FILLERS) if rng.random() < 0.5 else UNKNOWN_WORD
            prompt.insert(rng.randint(0, len(prompt)), filler)
    return " ".join(prompt)


_PATTERNS = (
    ("prefix", "article", "thing", "motion", "ground"),
    ("prefix", "article", "motion", "thing", "ground"),
)


def vocabulary() -> list[str]:
    """Every word that `wording` may use, sorted."""
    texts = ["a an the on of background video clip picture image", *FILLERS]
    for table in (MOTION_PHRASES, COLOUR_WORDS, SHAPE_WORDS, BACKGROUND_WORDS):
        texts += [phrase for phrases in table.values() for phrase in phrases]
    return sorted({word for text in texts for word in text.split()})


def _article(scene: Scene, rng: random.Random) -> str:
    if rng.random() >= ARTICLE_SHARE:
        return ""
    return scene.prompt.split()[0]


def _motion(scene: Scene, rng: random.Random) -> str:
    if scene.motion == "still" and rng.random() >= STILL_NAMED_SHARE:
        return ""
    return rng.choice(MOTION_PHRASES[scene.motion])


def _ground(scene: Scene, rng: random.Random) -> str:
    if scene.background == "black" and rng.random() >= BLACK_NAMED_SHARE:
        return ""
    return f"on a {rng.choice(BACKGROUND_WORDS[scene.background])} background"


def _jitter(rng: random.Random) -> float:
    return rng.uniform(-COLOUR_JITTER, COLOUR_JITTER)


def _jittered(colour: RGB, deviations: list[float]) -> RGB:
    red, green, blue = (
        min(1.0, max(0.0, channel + deviation))
        for channel, deviation in zip(colour, deviations, strict=True)
    )
    return red, green, blue
