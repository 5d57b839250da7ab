"""What the demo asks for: scenes of the embedded model in mixed sizes and lengths."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from elastic_dit.judging import BACKGROUNDS, COLOURS, MOTIONS, SHAPES, Scene

__all__ = ["demo_submissions"]

_SIZES = (64, 96, 48)
"""Width and height, pixels: the squares that the model was trained on."""
_FRAMES = (9, 17, 1)
"""Lengths."""


def demo_submissions(count: int, seed: int, model: str) -> list[dict[str, Any]]:
    """Options for `Client.submit`, one per request, the same for the same arguments.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        Draws the scenes; request *i* of them has the seed ``seed + i``.
    model : str
        Name under which the embedded model is served.

    Returns
    -------
    list of dict
        ``prompt``, ``model``, ``width``, ``height``, ``num_frames``, ``seed``, ``request_id``.

    Examples
    --------
    >>> plan = demo_submissions(9, seed=0, model="shapes")
    >>> len({(each["width"], each["num_frames"]) for each in plan})
    9
    """
    submissions = []
    for index, scene in enumerate(islice(_scenes(random.Random(seed)), count)):
        turn, size = divmod(index, len(_SIZES))
        submissions.append(
            {
                "prompt": scene.prompt,
                "model": model,
                "width": _SIZES[size],
                "height": _SIZES[size],
                # One further in each turn, so that every size meets every length.
                "num_frames": _FRAMES[(size + turn) % len(_FRAMES)],
                "seed": seed + index,
                "request_id": f"demo-{index + 1:03d}",
            }
        )
    return submissions


def _scenes(draw: random.Random) -> Iterator[Scene]:
    """Scenes without end in which every shape, colour, motion and background has its turn."""
    columns = [_shuffled_over_and_over(table, draw) for table in (SHAPES, COLOURS, MOTIONS)]
    grounds = _shuffled_over_and_over(BACKGROUNDS, draw)
    for shape, colour, motion in zip(*columns, strict=True):
        # White on white is no scene.
        ground = next(ground for ground in grounds if ground != colour)
        yield Scene(colour, shape, motion, ground)


def _shuffled_over_and_over(names: Iterable[str], draw: random.Random) -> Iterator[str]:
    deck = list(names)
    while True:
        draw.shuffle(deck)
        yield from deck
