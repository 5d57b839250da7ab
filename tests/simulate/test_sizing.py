from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.simulate.ddit_grid import Deployment
from elastic_dit.simulate.sizing import Target, deployment_of, find_size, sizes

TARGET = Target("p99", 60.0)
SIZES = sizes(128)


def summary(p99_s: float | None, completed: int = 5) -> dict[str, Any]:
    return {"p99_s": p99_s, "submitted": 5, "completed": completed, "attainment": 0.9}


@given(st.integers(0, len(SIZES)))
def test_finds_the_fewest_where_more_is_better(needed: int) -> None:
    asked: list[int] = []

    def simulate(gpus: int) -> dict[str, Any]:
        asked.append(gpus)
        return summary(50.0 if needed < len(SIZES) and gpus >= SIZES[needed] else 70.0)

    found = find_size(TARGET, simulate, SIZES)
    assert found.gpus == (SIZES[needed] if needed < len(SIZES) else None)
    assert len(asked) == len(set(asked)) <= 13
    assert list(found.tried) == sorted(asked)


def test_looks_below_what_it_found_where_more_may_be_worse() -> None:
    good = {8, 24, 64, 128}
    found = find_size(TARGET, lambda gpus: summary(50.0 if gpus in good else 70.0), SIZES)
    assert found.gpus == 8
    good = {24, 40}
    found = find_size(
        TARGET, lambda gpus: summary(50.0 if gpus in good else 70.0), [8, 16, 24, 32, 40]
    )
    assert found.gpus == 24


@pytest.mark.parametrize(
    ("text", "metric", "bound"),
    [
        ("p99<60", "p99", 60.0),
        (" mean <= 1.5 s ", "mean", 1.5),
        ("attainment>0.9", "attainment", 0.9),
    ],
)
def test_targets_are_read(text: str, metric: str, bound: float) -> None:
    assert Target.parse(text) == Target(metric, bound)


@pytest.mark.parametrize("text", ["p99", "p99>60", "attainment<0.9", "p42<1", "p99<x", ""])
def test_wrong_targets_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="such as p99<60"):
        Target.parse(text)


def test_a_target_needs_every_request() -> None:
    assert TARGET.met(summary(60.0))
    assert not TARGET.met(summary(60.1))
    assert not TARGET.met(summary(1.0, completed=4))
    assert not TARGET.met(summary(None))
    assert Target("attainment", 0.9).met(summary(None))


def test_sizes_are_parts_of_a_machine_and_whole_machines() -> None:
    assert sizes(6) == [1, 2, 4]
    assert sizes(8) == [1, 2, 4, 8]
    assert deployment_of(4) == Deployment(nodes=1, gpus_per_node=4)
    for gpus in SIZES:
        assert deployment_of(gpus).gpus == gpus
