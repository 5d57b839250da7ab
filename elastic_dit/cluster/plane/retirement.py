"""Let workers that hold our actors retire.

Dask does not retire a worker that holds an actor. Ours have no state of their own, so when Dask
announces that a worker is about to leave, and before it looks at what the worker holds, they are
released: ``retire_workers``, adaptive scaling and ``--lifetime`` then work as for any worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from distributed.metrics import time

__all__ = ["ACTOR_PREFIX", "announces_retirement", "release_actors"]

logger = logging.getLogger(__name__)

ACTOR_PREFIX = "elastic-dit-actor-"
"""How the keys of our actors begin; those of others are not touched."""


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
