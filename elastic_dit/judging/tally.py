"""Count how many of many clips are right, and in what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elastic_dit.judging.judge import Verdict
from elastic_dit.judging.scenes import Scene

__all__ = ["Tally", "tally"]


@dataclass(frozen=True)
class Tally:
    """Counts over a number of clips.

    Parameters
    ----------
    total : int
        Number of clips.
    colour, shape, motion, background : int
        How many were right in this. An image's motion counts as right.
    right : int
        How many were right in everything.
    """

    total: int
    colour: int
    shape: int
    motion: int
    background: int
    right: int

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {getattr(self, name)}" for name in ("colour", "shape", "motion", "background")
        )
        return f"{self.right} of {self.total} right ({parts})"


def tally(verdicts: Iterable[Verdict], scenes: Sequence[Scene]) -> Tally:
    """Count the verdicts that agree with their scenes.

    Parameters
    ----------
    verdicts : iterable of Verdict
        One per scene, in the same order.
    scenes : sequence of Scene
        What was asked for.

    Returns
    -------
    Tally
        The counts.

    Raises
    ------
    ValueError
        There are more or fewer verdicts than scenes.

    Examples
    --------
    >>> asked = Scene("red", "ring", "up")
    >>> print(tally([Verdict("red", "circle", "up", "black", iou=0.8, stray=0.0)], [asked]))
    0 of 1 right (colour 1, shape 0, motion 1, background 1)
    """
    wrong = [verdict.differences(scene) for verdict, scene in zip(verdicts, scenes, strict=True)]

    def count(name: str) -> int:
        return sum(name not in differing for differing in wrong)

    return Tally(
        total=len(scenes),
        colour=count("colour"),
        shape=count("shape"),
        motion=count("motion"),
        background=count("background"),
        right=sum(not differing for differing in wrong),
    )
