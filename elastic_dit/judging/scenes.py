"""What the embedded model can be asked for: its words, and prompts made from and read into scenes.

A scene is one coloured shape on a plain background that moves, grows, shrinks or rests. The word
tables are also the model's training vocabulary, so a prompt built from them holds no unknown word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

__all__ = [
    "BACKGROUNDS",
    "BACKGROUND_WORDS",
    "COLOURS",
    "COLOUR_WORDS",
    "MOTIONS",
    "MOTION_PHRASES",
    "RGB",
    "SHAPES",
    "SHAPE_WORDS",
    "Scene",
    "all_scenes",
    "evaluation_scenes",
    "parse_prompt",
]

RGB = tuple[float, float, float]
"""Red, green and blue, each from 0 to 1."""

COLOURS: Mapping[str, RGB] = MappingProxyType(
    {
        "red": (0.88, 0.10, 0.12),
        "green": (0.10, 0.68, 0.20),
        "blue": (0.12, 0.30, 0.95),
        "yellow": (0.98, 0.88, 0.10),
        "orange": (1.00, 0.50, 0.05),
        "purple": (0.58, 0.15, 0.80),
        "cyan": (0.15, 0.85, 0.90),
        "white": (0.98, 0.98, 0.98),
    }
)
"""Colour of a shape by name."""

BACKGROUNDS: Mapping[str, RGB] = MappingProxyType(
    {"black": (0.03, 0.03, 0.04), "white": (0.97, 0.97, 0.96), "gray": (0.38, 0.38, 0.40)}
)
"""Colour of a background by name."""

SHAPES = ("circle", "square", "triangle", "star", "heart", "ring", "cross", "diamond")
"""Names of the shapes."""

COLOUR_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (name,) for name in COLOURS} | {"purple": ("purple", "violet")}
)
"""Words for each colour, the plain one first."""

SHAPE_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (name,) for name in SHAPES}
    | {
        "circle": ("circle", "disc", "ball"),
        "square": ("square", "box"),
        "cross": ("cross", "plus"),
        "ring": ("ring", "hoop"),
    }
)
"""Words for each shape, the plain one first."""

BACKGROUND_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"black": ("black",), "white": ("white",), "gray": ("gray", "grey")}
)
"""Words for each background, the plain one first."""

MOTION_PHRASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "left": (
            "moving left",
            "drifting left",
            "sliding left",
            "going left",
            "moving to the left",
        ),
        "right": (
            "moving right",
            "drifting right",
            "sliding right",
            "going right",
            "moving to the right",
        ),
        "up": ("moving up", "drifting up", "rising", "going up", "moving upwards"),
        "down": ("moving down", "drifting down", "falling", "going down", "moving downwards"),
        "grow": ("growing", "getting bigger", "expanding"),
        "shrink": ("shrinking", "getting smaller"),
        "still": ("standing still", "not moving", "resting"),
    }
)
"""Phrases for each motion, the plain one first."""

MOTIONS = tuple(MOTION_PHRASES)
"""Names of the motions."""

_DEFAULT_BACKGROUND = "black"
_DEFAULT_MOTION = "still"


@dataclass(frozen=True)
class Scene:
    """One coloured shape, what it does, and what is behind it.

    Parameters
    ----------
    colour : str
        A key of `COLOURS`.
    shape : str
        One of `SHAPES`.
    motion : str
        One of `MOTIONS`.
    background : str
        A key of `BACKGROUNDS`.

    Raises
    ------
    ValueError
        A name is unknown, or the shape would be as white as its background.

    Examples
    --------
    >>> Scene("orange", "star", "grow", "gray").prompt
    'an orange star growing on a gray background'
    """

    colour: str
    shape: str
    motion: str = _DEFAULT_MOTION
    background: str = _DEFAULT_BACKGROUND

    def __post_init__(self) -> None:
        for name, table in (
            (self.colour, COLOURS),
            (self.shape, SHAPES),
            (self.motion, MOTIONS),
            (self.background, BACKGROUNDS),
        ):
            if name not in table:
                raise ValueError(f"{name!r} is none of {', '.join(table)}")
        if self.colour == self.background:
            raise ValueError(f"a {self.colour} shape cannot be seen on {self.background}")

    @property
    def prompt(self) -> str:
        """The scene in plain words, as the model was trained to read them."""
        article = "an" if self.colour[0] in "aeiou" else "a"
        motion = MOTION_PHRASES[self.motion][0]
        return f"{article} {self.colour} {self.shape} {motion} on a {self.background} background"


def all_scenes() -> list[Scene]:
    """Every scene there is, each once.

    Returns
    -------
    list of Scene
        All combinations but white on white.

    Examples
    --------
    >>> len(all_scenes())
    1288
    """
    return [
        Scene(colour, shape, motion, background)
        for colour, shape, motion, background in product(COLOURS, SHAPES, MOTIONS, BACKGROUNDS)
        if colour != background
    ]


def evaluation_scenes(count: int = 48) -> list[Scene]:
    """A fixed list of scenes that covers shapes, colours, motions and backgrounds evenly.

    Parameters
    ----------
    count : int
        How many scenes. With 48, each shape appears 6 times and each motion 6 or 7 times.

    Returns
    -------
    list of Scene
        The same list at every call.

    Examples
    --------
    >>> [scene.shape for scene in evaluation_scenes(3)]
    ['circle', 'square', 'triangle']
    """
    colours, backgrounds = tuple(COLOURS), tuple(BACKGROUNDS)
    scenes = []
    for index in range(count):
        colour = colours[(index // len(SHAPES) + index) % len(colours)]
        background = backgrounds[(index // 2) % len(backgrounds)]
        if colour == background:
            background = _DEFAULT_BACKGROUND
        shape, motion = SHAPES[index % len(SHAPES)], MOTIONS[index % len(MOTIONS)]
        scenes.append(Scene(colour, shape, motion, background))
    return scenes


def parse_prompt(prompt: str) -> Scene | None:
    """Read a prompt back into the scene it asks for.

    Parameters
    ----------
    prompt : str
        Any text; case and punctuation do not count. An unnamed background is black and an
        unnamed motion is none, as in training.

    Returns
    -------
    Scene or None
        None where the words name no colour or no shape, name two, or ask for white on white.

    Examples
    --------
    >>> parse_prompt("A video of a violet ball, falling.")
    Scene(colour='purple', shape='circle', motion='down', background='black')
    >>> parse_prompt("a corgi on a skateboard") is None
    True
    """
    text = " ".join(re.findall(r"[a-z]+", prompt.lower()))
    backgrounds = {
        name: tuple(f"{word} background" for word in words)
        for name, words in BACKGROUND_WORDS.items()
    }
    background = _named(text, backgrounds) or {_DEFAULT_BACKGROUND}
    # The background's colour word must not be taken for the shape's.
    rest = _without(text, (phrase for words in backgrounds.values() for phrase in words))
    found = (
        _named(rest, COLOUR_WORDS),
        _named(rest, SHAPE_WORDS),
        _named(rest, MOTION_PHRASES) or {_DEFAULT_MOTION},
        background,
    )
    if any(len(names) != 1 for names in found):
        return None
    colour, shape, motion, ground = (names.pop() for names in found)
    return None if colour == ground else Scene(colour, shape, motion, ground)


def _named(text: str, table: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Keys of the table one of whose phrases stands in the text as whole words."""
    padded = f" {text} "
    return {
        name
        for name, phrases in table.items()
        if any(f" {phrase} " in padded for phrase in phrases)
    }


def _without(text: str, phrases: Iterable[str]) -> str:
    """The text less every one of the phrases."""
    padded = f" {text} "
    for phrase in phrases:
        padded = padded.replace(f" {phrase} ", " ")
    return padded.strip()
