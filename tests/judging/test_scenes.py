"""Scenes, their prompts, and prompts read back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.judging.scenes import (
    BACKGROUND_WORDS,
    BACKGROUNDS,
    COLOUR_WORDS,
    COLOURS,
    MOTION_PHRASES,
    MOTIONS,
    SHAPE_WORDS,
    SHAPES,
    Scene,
    all_scenes,
    evaluation_scenes,
    parse_prompt,
)


def test_every_scene_is_read_back_from_its_own_prompt() -> None:
    scenes = all_scenes()
    assert len(scenes) == len(set(scenes)) == 8 * 8 * 7 * 3 - 8 * 7
    assert [parse_prompt(scene.prompt) for scene in scenes] == scenes


@pytest.mark.parametrize("table", [COLOUR_WORDS, SHAPE_WORDS, BACKGROUND_WORDS, MOTION_PHRASES])
def test_no_phrase_means_two_things(table: dict[str, tuple[str, ...]]) -> None:
    phrases = [phrase for words in table.values() for phrase in words]
    assert len(phrases) == len(set(phrases))


@given(
    colour=st.sampled_from([(n, w) for n, words in COLOUR_WORDS.items() for w in words]),
    shape=st.sampled_from([(n, w) for n, words in SHAPE_WORDS.items() for w in words]),
    motion=st.sampled_from([(n, w) for n, words in MOTION_PHRASES.items() for w in words]),
    prefix=st.sampled_from(["", "a video of", "Please show me", "An image of"]),
)
def test_synonyms_are_understood(
    colour: tuple[str, str], shape: tuple[str, str], motion: tuple[str, str], prefix: str
) -> None:
    prompt = f"{prefix} a {colour[1]} {shape[1].upper()}, {motion[1]}."
    assert parse_prompt(prompt) == Scene(colour[0], shape[0], motion[0], "black")


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "a circle",
        "something red",
        "a red and blue circle",
        "a red circle and a star",
        "a red star rising and falling",
        "a white circle on a white background",
        "a redcircle",
    ],
)
def test_what_names_no_single_scene_is_not_understood(prompt: str) -> None:
    assert parse_prompt(prompt) is None


def test_the_colour_of_the_background_is_not_that_of_the_shape() -> None:
    assert parse_prompt("a white ring on a black background") == Scene("white", "ring")
    assert parse_prompt("a ring on a white background") is None


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    scene = parse_prompt(text)
    assert scene is None or parse_prompt(scene.prompt) == scene


def test_evaluation_scenes_cover_everything_evenly() -> None:
    scenes = evaluation_scenes(48)
    assert len(set(scenes)) == 48
    assert set(Counter(scene.shape for scene in scenes).values()) == {6}
    assert set(Counter(scene.motion for scene in scenes).values()) == {6, 7}
    assert {scene.colour for scene in scenes} == set(COLOURS)
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert evaluation_scenes(12) == scenes[:12]


@pytest.mark.parametrize(
    "names",
    [
        ("pink", "circle", "left", "black"),
        ("red", "hexagon", "left", "black"),
        ("red", "circle", "sideways", "black"),
        ("red", "circle", "left", "green"),
        ("white", "circle", "left", "white"),
    ],
)
def test_a_scene_that_cannot_be_drawn_is_refused(names: tuple[str, str, str, str]) -> None:
    with pytest.raises(ValueError, match=r"is none of|cannot be seen"):
        Scene(*names)


def test_names_are_unique() -> None:
    assert len(set(SHAPES)) == len(SHAPES)
    assert len(set(MOTIONS)) == len(MOTIONS)
