"""Wait until a cluster has settled, so that what is timed does not pay for loading."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elastic_dit.errors import NotReady

if TYPE_CHECKING:
    from elastic_dit.client import Client

__all__ = ["is_settled", "wait_until_settled"]

_LOOK_S = 0.2
"""Seconds between two looks."""


def is_settled(status: Mapping[str, Any], gpus: int) -> bool:
    """Whether so many engines hold what the placement plan gives them, and nothing else.

    Parameters
    ----------
    status : mapping
        As `elastic_dit.cluster.plane.status.status_of` documents it.
    gpus : int
        Engines to expect. A stage that failed to load counts as held: waiting does not help.

    Returns
    -------
    bool
    """
    planned = {
        gpu: {tuple(stage) for stage in stages} for gpu, stages in status["plan"]["residency"]
    }
    return len(status["gpus"]) >= gpus and all(
        planned.get(gpu["gpu"]) == _keys(gpu["resident"]) | _keys(gpu["failed"])
        for gpu in status["gpus"]
    )


def wait_until_settled(client: Client, gpus: int, limit_s: float) -> None:
    """Wait for `is_settled`.

    Parameters
    ----------
    client : Client
        A synchronous one.
    gpus : int
        Engines to expect.
    limit_s : float
        Longest wait, seconds.

    Raises
    ------
    NotReady
        Where it takes longer.
    """
    deadline_s = time.monotonic() + limit_s
    while not is_settled(status := client.status(), gpus):
        if time.monotonic() > deadline_s:
            here = len(status["gpus"])
            raise NotReady(f"{here} of {gpus} engines joined; not all are loaded in {limit_s:g} s")
        # The control plane tells no one when a plan is carried out.
        time.sleep(_LOOK_S)


def _keys(stages: list[dict[str, str]]) -> set[tuple[str, ...]]:
    return {(key["model"], key["stage"]) for key in stages}
