"""What Dask says of our keys: abandoned by their clients, or lost with a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.events import CancelRequested
from elastic_dit.state import Phase

__all__ = ["Custody", "lost_keys"]

_ABANDONED = "abandoned: no client waits for it any more"


class Custody:
    """Turns the fate of keys into events, right after Dask has finished with them.

    Dask calls its plug-ins in the middle of its own transitions; nothing is done there.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._forgotten: list[str] = []
        self._lost: list[tuple[str, tuple[str, ...]]] = []

    def __repr__(self) -> str:
        return f"<Custody: {len(self._forgotten)} forgotten, {len(self._lost)} lost>"

    def forgotten(self, key: Any) -> None:
        """Dask dropped a key: cancelled, released, or its client gone."""
        if self._is_ours(key):
            self._soon()
            self._forgotten.append(key)

    def lost(self, keys: Iterable[Any]) -> None:
        """The only copies of some keys' values went with a worker; clients still wait."""
        for key in keys:
            record = self._reactor.controller.table.get(key)
            if self._is_ours(key) and (record is None or record.phase is Phase.COMPLETED):
                self._soon()
                self._lost.append((key, futures.wanted_by(self._reactor.scheduler, key)))

    def _is_ours(self, key: Any) -> bool:
        keeper = self._reactor.keeper
        is_known = self._reactor.controller.table.get(key) is not None
        return is_known or (keeper is not None and keeper.results.owns(key))

    def _soon(self) -> None:
        if not self._forgotten and not self._lost:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        forgotten, self._forgotten = self._forgotten, []
        lost, self._lost = self._lost, []
        scheduler, live = self._reactor.scheduler, self._reactor.controller.table.live
        keeper = self._reactor.keeper
        # The last accepted first: what waits goes before what runs, so that nothing is started
        # only to be cancelled next.
        for key in reversed(forgotten):
            futures.forget_name(scheduler, key)
            if keeper is not None:
                keeper.results.forget_key(key)
            if key in live and not futures.is_expected(scheduler, key):
                self._reactor.observe(CancelRequested(request_id=key, reason=_ABANDONED))
        for key, clients in lost:
            if futures.revive(scheduler, key, clients):
                self._reactor.result_lost(key)


def lost_keys(message: object) -> Iterable[Any]:
    """Keys that an event on Dask's topic ``all`` declares lost.

    >>> lost_keys({"action": "remove-worker", "lost-scattered-tasks": {"r1"}})
    {'r1'}
    >>> lost_keys({"action": "add-worker"})
    ()
    """
    if isinstance(message, Mapping) and message.get("action") == "remove-worker":
        keys: Iterable[Any] = message.get("lost-scattered-tasks", ())
        return keys
    return ()
