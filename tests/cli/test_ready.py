from __future__ import annotations

from typing import Any

import pytest

from elastic_dit.cli.ready import is_settled, wait_until_settled
from elastic_dit.errors import NotReady


def key(stage: str) -> dict[str, str]:
    return {"model": "shapes", "stage": stage}


def gpu(number: int, *resident: str, failed: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "gpu": number,
        "resident": [key(stage) for stage in resident],
        "failed": [{**key(stage), "cause": "no"} for stage in failed],
    }


def status(*gpus: dict[str, Any]) -> dict[str, Any]:
    planned = [[0, [["shapes", "encoder"], ["shapes", "decoder"]]], [1, [["shapes", "dit"]]]]
    return {"gpus": list(gpus), "plan": {"residency": planned}}


@pytest.mark.parametrize(
    ("gpus", "settled"),
    [
        ((gpu(0, "encoder", "decoder"), gpu(1, "dit")), True),
        ((gpu(0, "encoder"), gpu(1, "dit")), False),
        # What an earlier plan left is still to be dropped.
        ((gpu(0, "encoder", "dit", "decoder"), gpu(1, "dit")), False),
        ((gpu(0, "encoder", "decoder"),), False),
        ((gpu(0, "encoder", failed=("decoder",)), gpu(1, "dit")), True),
        ((gpu(0, "encoder", "decoder"), gpu(1, "dit"), gpu(2)), False),
    ],
)
def test_settled_is_what_the_plan_says(gpus: tuple[dict[str, Any], ...], settled: bool) -> None:
    assert is_settled(status(*gpus), 2) is settled


class Settling:
    """A client whose cluster settles at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def status(self) -> dict[str, Any]:
        self.looks += 1
        return status(gpu(0, "encoder", "decoder"), gpu(1, *(["dit"] if self.looks > 2 else [])))


def test_waits_until_settled_but_not_for_ever() -> None:
    client = Settling()
    with pytest.raises(NotReady, match="2 of 2 engines joined; not all are loaded in 0 s"):
        wait_until_settled(client, 2, limit_s=0)  # type: ignore[arg-type]
    wait_until_settled(client, 2, limit_s=10)  # type: ignore[arg-type]
    assert client.looks == 3
