"""Errors cross the border as plain data and come back as themselves."""

from __future__ import annotations

import asyncio

import pytest

from elastic_dit import errors
from elastic_dit.cluster.refusals import (
    pack_error,
    raise_refusal,
    refusals_as_data,
    unpack_error,
)

SAMPLES = [
    errors.InvalidRequest("width", 33, "a multiple of 16"),
    errors.UnknownModel("model", "x", "one of y"),
    errors.RequestConflict("r1", ("prompt", "width")),
    errors.AdmissionRefused("full", 3.0),
    errors.GenerationFailed("r1", "dit", "RuntimeError", "boom", 2),
    errors.GenerationCancelled("r1", "because"),
    errors.NotReady("no engine"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_itself(error):
    back = unpack_error(pack_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_values_that_are_no_plain_data_travel_as_their_text():
    packed = pack_error(errors.InvalidRequest("seed", object, "a number"))
    assert packed["arguments"] == ["seed", "<class 'object'>", "a number"]


def test_what_is_not_ours_is_not_built():
    for name in ("SystemExit", "annotations", "_FieldError", "Sequence"):
        assert type(unpack_error({"type": name, "arguments": [1]})) is errors.ClusterError
    wrong = unpack_error({"type": "AdmissionRefused", "arguments": []})
    assert type(wrong) is errors.ClusterError


def test_a_handler_that_refuses_or_breaks_still_answers(caplog):
    @refusals_as_data
    async def handler(error):
        if error is not None:
            raise error
        return {"fine": True}

    assert asyncio.run(handler(None)) == {"fine": True}
    with pytest.raises(errors.NotReady, match="no engine"):
        raise_refusal(asyncio.run(handler(errors.NotReady("no engine"))))
    with pytest.raises(errors.ClusterError, match="internal error in handler: ZeroDivision"):
        raise_refusal(asyncio.run(handler(ZeroDivisionError("x"))))
    assert "handler failed" in caplog.text
