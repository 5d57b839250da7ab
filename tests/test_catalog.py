"""A model card refuses what its model cannot make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.errors import InvalidRequest

CARD = ModelCard(
    name="shapes",
    family="wan",
    size_multiple=16,
    max_side=96,
    max_pixels=96 * 64,
    frame_multiple=4,
    max_frames=17,
    max_steps=100,
    max_prompt_tokens=16,
    defaults=RequestDefaults(
        width=64, height=64, num_frames=9, fps=8, num_inference_steps=12, guidance_scale=4.0
    ),
)
BASE = {"prompt": "a red circle", "request_id": "r1", "seed": 0}


def test_defaults_are_filled_and_none_counts_as_not_given():
    request = CARD.complete({**BASE, "width": None, "num_frames": 5})
    assert (request.width, request.height, request.num_frames) == (64, 64, 5)
    assert request.model == "shapes"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("width", 33, "width = 33: must be a multiple of 16 from 16 to 96, such as 32 or 48"),
        ("width", 8, "width = 8: must be a multiple of 16 from 16 to 96, such as 16"),
        ("height", 112, "height = 112: must be a multiple of 16 from 16 to 96"),
        ("num_frames", 15, "num_frames = 15: must be 4k + 1 from 1 to 17, such as 13 or 17"),
        ("num_frames", 21, "num_frames = 21: must be 4k + 1 from 1 to 17"),
        ("num_inference_steps", 101, "num_inference_steps = 101: must be from 1 to 100"),
        ("guidance_scale", 1e6, "guidance_scale = 1000000.0: must be from 0 to 100"),
    ],
)
def test_beyond_the_limits(field, value, message):
    with pytest.raises(InvalidRequest) as caught:
        CARD.complete({**BASE, field: value})
    assert str(caught.value) == message


def test_too_many_pixels():
    with pytest.raises(InvalidRequest, match="width x height = '96x96': must be at most 6144"):
        CARD.complete({**BASE, "width": 96, "height": 96})


def test_prompt_tokens():
    request = CARD.complete(BASE)
    CARD.check(request, prompt_tokens=16)
    with pytest.raises(InvalidRequest, match="prompt = '17 tokens': must be at most 16 tokens"):
        CARD.check(request, prompt_tokens=17)
    with pytest.raises(InvalidRequest, match="negative_prompt = '17 tokens'"):
        CARD.check(request, 16, 17)


def test_image_models_make_one_frame():
    card = CARD.model_copy(update={"max_frames": 1, "frame_multiple": 1})
    with pytest.raises(InvalidRequest, match="num_frames = 9: must be 1: this model makes images"):
        card.complete({**BASE, "num_frames": 9})


@given(st.integers(-40, 200), st.integers(-10, 40))
def test_accepts_exactly_what_the_rule_says(side, frames):
    right = side in range(16, 97, 16) and frames in range(1, 18, 4)
    options = {**BASE, "width": side, "height": 16, "num_frames": frames}
    if right:
        assert CARD.complete(options).num_frames == frames
    else:
        with pytest.raises(InvalidRequest):
            CARD.complete(options)


@given(st.integers(1, 96).filter(lambda side: side % 16))
def test_suggested_sizes_are_accepted(side):
    with pytest.raises(InvalidRequest) as caught:
        CARD.complete({**BASE, "width": side, "height": 16})
    suggestions = caught.value.allowed.split("such as ")[1].split(" or ")
    for suggestion in suggestions:
        assert CARD.complete({**BASE, "width": int(suggestion), "height": 16})
