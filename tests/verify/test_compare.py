from __future__ import annotations

import math

import pytest
import torch

from elastic_dit.errors import ConfigError
from elastic_dit.verify.compare import TOLERANCES, Reference, tolerance_of


def payload(*values: float, dtype: torch.dtype = torch.float32) -> dict[str, object]:
    return {"decode": {"args": (torch.tensor(values, dtype=dtype),), "kwargs": {"x": 1}}}


def test_the_error_is_that_of_the_worst_element() -> None:
    reference = Reference(payload(1.0, -3.0, 2.0), tolerance=0.1)
    assert reference.error(payload(1.0, -3.0, 2.0)) == 0.0
    assert reference.error(payload(1.25, -2.0, 2.5)) == 1.0
    assert (reference.largest, reference.limit) == (3.0, pytest.approx(0.3))
    assert Reference(payload(0.5), tolerance=0.1).limit == 0.1


def test_what_is_no_number_or_has_another_shape_is_infinitely_far() -> None:
    reference = Reference(payload(1.0, 2.0), tolerance=1e-5)
    assert reference.error(payload(1.0, math.nan)) == math.inf
    assert reference.error(payload(1.0)) == math.inf
    assert reference.error({}) == math.inf


def test_bfloat16_is_not_compared_in_bfloat16() -> None:
    reference = Reference(payload(256.0, dtype=torch.bfloat16), tolerance=1.0)
    assert reference.error(payload(255.0, dtype=torch.bfloat16)) == 1.0


def test_every_dtype_of_the_table_has_a_bound_far_below_a_wrong_result() -> None:
    assert all(tolerance_of(name) <= 0.05 for name in TOLERANCES)
    with pytest.raises(ConfigError, match="dtype = 'int8': must be one of float32"):
        tolerance_of("int8")
