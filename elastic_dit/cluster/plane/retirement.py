"""What Dask says of workers that leave, and letting those retire that hold our actors.

Dask does not retire a worker that holds an actor. Ours have no state of their own, so when Dask
announces that a worker is about to leave, and before it looks at what the worker holds, they are
released: ``retire_workers``, adaptive scaling and ``--lifetime`` then work as for any worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from distributed.metrics import time

from elastic_dit.cluster.messages import GIVES_UP

__all__ = [
    "ACTOR_PREFIX",
    "announces_retirement",
    "closes_in_order",
    "release_actors",
    "retired_worker",
]

logger = logging.getLogger(__name__)

ACTOR_PREFIX = "elastic-dit-actor-"
"""How the keys of our actors begin; those of others are not touched."""
_BROKEN_INSIDE = "-fail-hard"
"""How the reason ends with which Dask closes a worker after an error of its own."""


def announces_retirement(message: object) -> bool:
    """Whether an event on a worker's topic says that it is about to be retired.

    >>> announces_retirement({"action": "worker-status-change", "status": "closing_gracefully"})
    True
    """
    return (
        isinstance(message, Mapping)
        and message.get("action") == "worker-status-change"
        and message.get("status") == "closing_gracefully"
    )


def closes_in_order(message: object) -> bool:
    """Whether an event on a worker's topic says that it closes, and for no trouble of its own.

    A worker says so before it stops anything; one that is killed says nothing.

    >>> closes_in_order({"action": "closing-worker", "reason": "signal-15"})
    True
    >>> closes_in_order({"action": "closing-worker", "reason": f"{GIVES_UP}: the device hangs"})
    False
    """
    if not isinstance(message, Mapping) or message.get("action") != "closing-worker":
        return False
    reason = str(message.get("reason"))
    return not (reason.startswith(GIVES_UP) or reason.endswith(_BROKEN_INSIDE))


def retired_worker(message: object) -> str | None:
    """Address of the worker of which an event on Dask's topic ``all`` says that it has retired.

    >>> retired_worker({"action": "remove-worker", "worker": "tcp://a", "expected": True})
    'tcp://a'
    >>> retired_worker({"action": "remove-worker", "worker": "tcp://a", "expected": False})
    """
    if not isinstance(message, Mapping) or message.get("action") != "remove-worker":
        return None
    return str(message["worker"]) if message.get("expected") else None


def release_actors(scheduler: Any, address: str) -> tuple[str, ...]:
    """Release our actors on one worker, whoever holds futures of them; their keys."""
    worker = scheduler.workers.get(address)
    held = [] if worker is None else [task for task in worker.actors if _is_ours(task.key)]
    for task in held:
        logger.info("releasing actor %s: its worker %s retires", task.key, address)
        for client in tuple(task.who_wants or ()):
            stimulus = f"elastic-dit-retirement-{time()}"
            scheduler.client_releases_keys([task.key], client.client_key, stimulus)
    return tuple(task.key for task in held)


def _is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(ACTOR_PREFIX)
