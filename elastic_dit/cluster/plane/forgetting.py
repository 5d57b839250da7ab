"""Requests that somebody wants to be forgotten, results and all."""

from __future__ import annotations

from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.desk import RequestDesk
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.refusals import raise_refusal, refusals_as_data
from elastic_dit.errors import UnknownRequest

__all__ = ["Forgetting"]

_REASON = "it was deleted"


class Forgetting:
    """Deletes requests everywhere: here, in the journal, at clients that hold their futures.

    Parameters
    ----------
    reactor : Reactor
    desk : RequestDesk
    """

    def __init__(self, reactor: Reactor, desk: RequestDesk) -> None:
        self._reactor = reactor
        self._desk = desk

    def __repr__(self) -> str:
        return f"<Forgetting at {self._desk!r}>"

    @refusals_as_data
    async def forget(self, request_id: str) -> dict[str, Any]:
        """Stop a request if it lives, and forget it.

        Returns
        -------
        dict
            ``forgotten``: true.
        """
        reactor = self._reactor
        is_written = False
        if reactor.keeper is not None:
            await reactor.keeper.ready()
            is_written = bool(await reactor.keeper.find([request_id]))
        if not is_written and reactor.controller.table.get(request_id) is None:
            raise UnknownRequest(request_id)
        raise_refusal(await self._desk.cancel(request_id, None, _REASON))
        if reactor.keeper is not None:
            await reactor.keeper.forget(request_id)
        reactor.controller.forget(request_id)
        futures.revoke(reactor.scheduler, request_id, _REASON)
        return {"forgotten": True}
