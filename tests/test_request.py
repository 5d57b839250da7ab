"""Requests refuse what no model can make, and say so."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.errors import InvalidRequest
from elastic_dit.request import MAX_SEED, GenerationRequest, Stage, new_request_id

FIELDS = {
    "request_id": "r1",
    "model": "shapes",
    "prompt": "a red circle moving left on a black background",
    "width": 64,
    "height": 64,
    "num_frames": 9,
    "fps": 8,
    "num_inference_steps": 12,
    "guidance_scale": 4.0,
    "seed": 7,
}


def test_round_trip_through_json():
    request = GenerationRequest.parse(**FIELDS)
    assert GenerationRequest.model_validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("prompt", "", "a text that is not empty"),
        ("prompt", "  \n", "a text that is not empty"),
        ("prompt", None, "a text that is not empty"),
        ("width", 0, "a whole number of 1 or more"),
        ("height", -16, "a whole number of 1 or more"),
        ("width", 33.5, "a whole number of 1 or more"),
        ("num_frames", 0, "a whole number of 1 or more"),
        ("num_frames", True, "a whole number of 1 or more"),
        ("num_inference_steps", 0, "a whole number of 1 or more"),
        ("fps", "fast", "a whole number from 1 to 1000"),
        ("fps", 1001, "a whole number from 1 to 1000"),
        ("seed", -1, f"a whole number from 0 to {MAX_SEED}"),
        ("seed", MAX_SEED + 1, f"a whole number from 0 to {MAX_SEED}"),
        ("guidance_scale", math.nan, "a finite number of 0 or more"),
        ("guidance_scale", math.inf, "a finite number of 0 or more"),
        ("guidance_scale", -0.5, "a finite number of 0 or more"),
        ("deadline_s", 0.0, "a finite number of seconds above 0"),
        ("request_id", "no spaces", "1 to 64 letters, digits, dots, colons, dashes or underscores"),
        ("request_id", "", "1 to 64 letters, digits, dots, colons, dashes or underscores"),
    ],
)
def test_wrong_value_names_field_value_and_what_is_allowed(field, value, allowed):
    with pytest.raises(InvalidRequest) as caught:
        GenerationRequest.parse(**{**FIELDS, field: value})
    assert caught.value.field == field
    assert caught.value.allowed == allowed


def test_unknown_field_lists_the_known_ones():
    with pytest.raises(InvalidRequest, match=r"one of the known fields: .*guidance_scale"):
        GenerationRequest.parse(**FIELDS, cfg=4.0)


def test_missing_field_is_named():
    with pytest.raises(InvalidRequest, match="width = None: must be given"):
        GenerationRequest.parse(**{k: v for k, v in FIELDS.items() if k != "width"})


@pytest.mark.parametrize("prompt", ["🔴 moving left", "一个红色的圆", "a" * 100_000])
def test_prompts_of_any_script_and_length_are_text(prompt):
    assert GenerationRequest.parse(**{**FIELDS, "prompt": prompt}).prompt == prompt


def test_requests_are_immutable():
    request = GenerationRequest.parse(**FIELDS)
    with pytest.raises(ValueError, match="frozen"):
        request.seed = 8


@given(st.integers(0, MAX_SEED))
def test_every_allowed_seed_is_kept(seed):
    assert GenerationRequest.parse(**{**FIELDS, "seed": seed}).seed == seed


def test_new_ids_are_valid_distinct_and_ordered():
    ids = [new_request_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert [i[:16] for i in ids] == sorted(i[:16] for i in ids)
    assert GenerationRequest.parse(**{**FIELDS, "request_id": ids[0]}).request_id == ids[0]


def test_stages_follow_each_other():
    assert [stage.following for stage in Stage] == [Stage.DIT, Stage.DECODER, None]
