"""The control plane's calls to workers about result files: bounded, tried again, never raising."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from elastic_dit.cluster.messages import FENCE_OP
from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.worker.result_files import KEEP_OP, RESTORE_OP, write_records
from elastic_dit.events import Complete
from elastic_dit.request import new_request_id

if TYPE_CHECKING:
    from elastic_dit.cluster.plane.reactor import Reactor

__all__ = ["BACKOFF_S", "TRIES", "FileCalls"]

logger = logging.getLogger(__name__)

TRIES = 3
"""Calls about one result before it counts as impossible."""
BACKOFF_S = 0.5
"""Wait before the second of them, seconds; doubles."""
_FILE_TIMEOUT_S = 120.0
"""Longest write or read of one result by a worker."""


class FileCalls:
    """Results between workers' memories and files.

    Parameters
    ----------
    reactor : Reactor
    url : str
        Of the result store.
    """

    def __init__(self, reactor: Reactor, url: str) -> None:
        self._reactor = reactor
        self._url = url
        self._turn = 0

    def __repr__(self) -> str:
        return f"<FileCalls about {self._url}>"

    async def keep(self, command: Complete) -> bool | None:
        """Let the worker that holds a result write it.

        Returns
        -------
        bool or None
            False where it cannot, None where nobody holds it any more.
        """
        cause = ""
        for tries in range(TRIES):
            address = self._reactor.directory.address(command.result.gpu)
            if address is None:
                return None
            records = write_records(command.records)
            reply = await self._call(address, KEEP_OP, command.request_id, records=records)
            if reply["status"] in ("OK", "missing"):
                return True if reply["status"] == "OK" else None
            cause = reply["cause"]
            await asyncio.sleep(BACKOFF_S * 2**tries)
        logger.error("The result of request %s cannot be kept: %s", command.request_id, cause)
        return False

    async def restore(self, request_id: str) -> tuple[bool, str]:
        """Let some worker read a result into its memory, and give it to those who wait.

        Returns
        -------
        tuple of bool and str
            Whether the store has it, for all that is known; and why it could not be given,
            empty where it was.
        """
        scheduler = self._reactor.scheduler
        cause = "no engine is there to read its file"
        for tries in range(TRIES):
            address = await self._some_engine()
            if address is None:
                break
            fence = self._mark(address, request_id)
            reply = await self._call(address, RESTORE_OP, request_id, fence=fence)
            if reply["status"] == "OK":
                if not futures.deliver(scheduler, request_id, address, reply["nbytes"]):
                    futures.discard(scheduler, request_id, address)
                return True, ""
            cause = reply["cause"]
            if reply["status"] == "gone":
                return False, cause
            await asyncio.sleep(BACKOFF_S * 2**tries)
        return True, cause

    def _mark(self, address: str, request_id: str) -> str:
        """Mark a worker's stream, if it is still there; the mark."""
        fence = new_request_id()
        if address in self._reactor.scheduler.workers:
            mark = {"op": FENCE_OP, "client": request_id, "token": fence}
            self._reactor.scheduler.worker_send(address, mark)
        return fence

    async def _some_engine(self) -> str | None:
        """The address of an engine's worker, waiting for the first; None if none comes."""
        reactor = self._reactor
        try:
            async with asyncio.timeout(reactor.config.client.ready_timeout_s):
                while not (members := reactor.directory.members):
                    await reactor.cards.next_engine()
        except TimeoutError:
            return None
        self._turn += 1  # one after the other: a result takes the memory of its worker
        return members[self._turn % len(members)].address

    async def _call(
        self, address: str, operation: str, request_id: str, **arguments: Any
    ) -> dict[str, Any]:
        """A worker's answer; of one that cannot be reached or does not know the call, an error."""
        try:
            async with asyncio.timeout(_FILE_TIMEOUT_S):
                call = getattr(self._reactor.scheduler.rpc(address), operation)
                reply: dict[str, Any] = await call(
                    request_id=request_id, url=self._url, **arguments
                )
        except Exception as error:
            return {"status": "error", "cause": f"{address}: {error!r}"}
        return reply
