"""Dask futures for results that no Dask task computes.

A request is a key without a run spec: clients want it, an engine puts its value on a worker, and
the scheduler is told. `distributed.Future` then does the rest: ``result``, ``gather``,
``as_completed``, callbacks, and freeing the value when nobody holds a future any more.

This is the only module that touches the parts of `distributed.Scheduler` on which that rests and
which its documentation does not promise: ``new_task``, ``client_desires_keys``, ``update_data``,
the ``released -> erred`` transition, task prefixes and the broker's topics. Each has a test of
its own in ``tests/cluster/plane/test_futures.py``, to be run against new releases of distributed.

With a journal a live request belongs to the cluster: it `hold`s the key in the name of a client
that is not connected, as Dask does for ``fire_and_forget``, so it outlives those that are.

A key must have no Dask dependents while it is pending: the scheduler would try to run it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask.utils import key_split
from distributed.core import error_message
from distributed.metrics import time

__all__ = [
    "deliver",
    "discard",
    "expect",
    "fail",
    "forget_name",
    "forget_topic",
    "hold",
    "is_expected",
    "let_go",
    "release",
    "revive",
    "revoke",
    "wanted_by",
    "withdraw",
]


_HOLDER = "elastic-dit-journal"
"""The client in whose name keys are held."""


def is_expected(scheduler: Any, key: str) -> bool:
    """Whether the scheduler knows `key`: some client wants it, or an ordinary task has its name."""
    return key in scheduler.tasks


def wanted_by(scheduler: Any, key: str) -> tuple[str, ...]:
    """Ids of the connected clients that hold a future of `key`."""
    return tuple(client for client in _wanted_by(scheduler, key) if client != _HOLDER)


def expect(scheduler: Any, key: str, client: str) -> None:
    """Make `key` a pending future of `client`; other clients' futures of it are shared."""
    if key not in scheduler.tasks:
        scheduler.new_task(key, None, "released")
    scheduler.client_desires_keys([key], client)


def hold(scheduler: Any, key: str) -> None:
    """Keep `key`, whether clients want it or not, until its `release`."""
    expect(scheduler, key, _HOLDER)


def release(scheduler: Any, key: str) -> None:
    """End a `hold`; the key is forgotten unless a client wants it."""
    let_go(scheduler, key, _HOLDER)


def deliver(scheduler: Any, key: str, address: str, nbytes: int) -> bool:
    """Finish `key`: its value lies on the worker at `address`.

    Returns
    -------
    bool
        False where the key is no longer wanted or the worker has left; then nothing was done.
    """
    if key not in scheduler.tasks or address not in scheduler.workers:
        return False
    scheduler.update_data(who_has={key: [address]}, nbytes={key: nbytes})
    return True


def fail(scheduler: Any, key: str, error: Exception) -> None:
    """End `key` with `error` at all its clients, also at those that join later."""
    task = scheduler.tasks.get(key)
    if task is None:
        return
    message = error_message(error)
    task.exception = message["exception"]
    task.traceback = message["traceback"]
    task.exception_text = message["exception_text"]
    task.traceback_text = message["traceback_text"]
    task.exception_blame = task
    scheduler.transitions({key: "erred"}, _stimulus("failed"))


def withdraw(scheduler: Any, key: str, reason: str) -> None:
    """Cancel `key` at all its clients and forget it, unless it has ended."""
    task = scheduler.tasks.get(key)
    if task is not None and task.state == "released":
        revoke(scheduler, key, reason)


def revoke(scheduler: Any, key: str, reason: str) -> None:
    """Cancel `key` at all its clients, ended or not, and free its value if it has one."""
    task = scheduler.tasks.get(key)
    if task is None:
        return
    cancelled = {"op": "cancelled-keys", "keys": [key], "reason": reason, "msg": None}
    scheduler.report(cancelled, ts=task)
    for client in _wanted_by(scheduler, key):
        let_go(scheduler, key, client)


def let_go(scheduler: Any, key: str, client: str) -> None:
    """Drop one client's wish; the key is forgotten with the last one."""
    if client in _wanted_by(scheduler, key):
        scheduler.client_releases_keys([key], client, _stimulus("released"))


def discard(scheduler: Any, key: str, address: str) -> None:
    """Free a value that was put on a worker and that nobody wants."""
    if address in scheduler.workers:
        message = {"op": "free-keys", "keys": [key], "stimulus_id": _stimulus("unwanted")}
        scheduler.worker_send(address, message)


def revive(scheduler: Any, key: str, clients: Iterable[str]) -> tuple[str, ...]:
    """Make a finished key whose only worker died pending again.

    Returns
    -------
    tuple of str
        The clients that are still connected and wait for it now; if none, nothing was done.
    """
    present = tuple(client for client in clients if client in scheduler.clients)
    for client in present:
        expect(scheduler, key, client)
    if present:
        scheduler.report({"op": "task-retried", "key": key})
    return present


def forget_name(scheduler: Any, key: str) -> None:
    """Free the statistics of a key that is gone; Dask would keep them for each new name."""
    prefix = scheduler.task_prefixes.get(key_split(key))
    if prefix is not None and not prefix.groups:
        del scheduler.task_prefixes[prefix.name]


def forget_topic(scheduler: Any, topic: str, client: str) -> None:
    """Free the event topic of a client that has left; Dask would keep it for good."""
    scheduler.unsubscribe_topic(topic, client)
    scheduler._broker._topics.pop(topic, None)


def _wanted_by(scheduler: Any, key: str) -> tuple[str, ...]:
    task = scheduler.tasks.get(key)
    return () if task is None else tuple(client.client_key for client in task.who_wants or ())


def _stimulus(what: str) -> str:
    return f"elastic-dit-{what}-{time()}"
