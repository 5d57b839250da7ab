"""Requests by their ids: what a client can ask of any request, whoever submitted it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

import distributed

from elastic_dit.cluster.listener import Listener
from elastic_dit.cluster.reports import RequestStatus, read_report, read_status
from elastic_dit.future import GenerationFuture
from elastic_dit.request import GenerationRequest

__all__ = ["Jobs"]


class Jobs(ABC):
    """The part of `elastic_dit.Client` that knows requests by id.

    With a journal (`elastic_dit.config.JournalConfig`) requests and results of earlier lives of
    the cluster are among them, and neither end with their clients; without one, those that are
    live or ended lately.
    """

    _dask: distributed.Client
    _listener: Listener

    def future(self, request_id: str) -> Any:
        """The future of a request that was submitted before, here or elsewhere.

        Parameters
        ----------
        request_id : str

        Returns
        -------
        GenerationFuture
            Of a live request, or one that has ended; then it ends at once in the same way.

        Raises
        ------
        UnknownRequest
            Where there is none of that id.
        ResultGone
            Where it completed and its result is not kept.
        NotReady
            Where no worker has brought the cluster's settings yet: as the next two, too.
        """
        return self._sync(self._future(request_id))

    def status_of(self, request_id: str) -> Any:
        """How a request stands or ended: a `RequestStatus`.

        Raises
        ------
        UnknownRequest
            Where there is none of that id.
        """
        return self._sync(self._status_of(request_id))

    def requests(
        self,
        limit: int = 100,
        after: str | None = None,
        *,
        newest_first: bool = True,
        ended: bool | None = None,
        owner: str | None = None,
    ) -> Any:
        """Known requests by the order of their acceptance, a page at a time.

        Parameters
        ----------
        limit : int
            Most to return; the control plane gives at most 1000 at once.
        after : str, optional
            Id of the last request of the page before.
        newest_first : bool
        ended : bool, optional
            Only those that have ended, or that have not.
        owner : str, optional
            Only those submitted with this `owner`.

        Returns
        -------
        list of RequestStatus

        Raises
        ------
        UnknownRequest
            Where no request `after` is known.
        """
        query = {"limit": limit, "after": after, "newest_first": newest_first}
        return self._sync(self._requests({**query, "ended": ended, "owner": owner}))

    def cancel(self, request_id: str, reason: str = "cancelled by its id") -> Any:
        """Stop a request in whatever phase it is, for all clients that wait for it.

        Returns
        -------
        bool
            False where it had ended before, or is not known.
        """
        return self._sync(self._cancel(request_id, reason))

    def forget(self, request_id: str) -> Any:
        """Stop a request if it lives, and forget it with its result, for everybody.

        Raises
        ------
        UnknownRequest
            Where there is none of that id.
        JournalError
            Where the journal cannot be told.
        """
        return self._sync(self._call("elastic_dit_forget", request_id=request_id))

    async def _future(self, request_id: str) -> GenerationFuture:
        await asyncio.sleep(0)  # futures of the same id that were just dropped go first
        # Before the call, so that an end that follows at once finds its future here.
        future = GenerationFuture(request_id, self._dask, self._listener)
        try:
            receipt = await self._call(
                "elastic_dit_join",
                request_id=request_id,
                client=self._dask.id,
                fence=self._fence(),
            )
        except BaseException:
            future.release()
            raise
        request = GenerationRequest.model_validate(receipt["request"])
        future.begin(request, read_report(receipt["report"]))
        return future

    async def _status_of(self, request_id: str) -> RequestStatus:
        return read_status(await self._call("elastic_dit_status_of", request_id=request_id))

    async def _requests(self, query: dict[str, Any]) -> list[RequestStatus]:
        reply = await self._call("elastic_dit_requests", **query)
        return [read_status(status) for status in reply["requests"]]

    async def _cancel(self, request_id: str, reason: str) -> bool:
        reply = await self._call(
            "elastic_dit_cancel", request_id=request_id, client=None, reason=reason
        )
        return bool(reply["cancelled"])

    # -- of the client
    @abstractmethod
    async def _call(
        self, operation: str, limit_s: float | None = None, **arguments: Any
    ) -> Any: ...

    @abstractmethod
    def _sync(self, work: Coroutine[Any, Any, Any]) -> Any: ...

    @abstractmethod
    def _fence(self) -> str | None: ...
