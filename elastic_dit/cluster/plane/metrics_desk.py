"""The control plane's metrics: counted here, told over RPC and on the scheduler's HTTP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from tornado.web import RequestHandler

from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.refusals import REFUSED, refusals_as_data
from elastic_dit.metrics.catalogue import REQUESTS_REFUSED
from elastic_dit.metrics.exposition import CONTENT_TYPE, expose
from elastic_dit.metrics.gauges import read_gauges
from elastic_dit.metrics.tally import Readings

__all__ = ["METRICS_PAGE", "MetricsDesk"]

P = ParamSpec("P")

METRICS_PAGE = "/elastic-dit/metrics"
"""Where the Dask scheduler's own HTTP server shows them, behind its prefix if it has one."""


class MetricsDesk:
    """Answers who asks for metrics.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def __repr__(self) -> str:
        return f"<MetricsDesk {self._reactor.recorder!r}>"

    def readings(self) -> Readings:
        """What was counted, and how things stand."""
        reactor = self._reactor
        counted = reactor.recorder.tally.readings()
        return counted + read_gauges(reactor.controller, reactor.clock())

    @refusals_as_data
    async def metrics(self) -> dict[str, Any]:
        """`readings` as plain data."""
        return self.readings().to_wire()

    def counted(
        self, submit: Callable[P, Awaitable[dict[str, Any]]]
    ) -> Callable[P, Coroutine[Any, Any, dict[str, Any]]]:
        """The same call, its refusals counted by the type of their error."""

        @wraps(submit)
        async def answer(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
            reply = await submit(*args, **kwargs)
            if REFUSED in reply:
                self._reactor.recorder.tally.count(REQUESTS_REFUSED, reply[REFUSED]["type"])
            return reply

        return answer

    def show_on(self, scheduler: Any) -> None:
        """Show them on a Dask scheduler's HTTP server."""
        page = (rf"(?:/.*)?{METRICS_PAGE}", _Page, {"desk": self})
        scheduler.http_application.add_handlers(".*", [page])


class _Page(RequestHandler):  # type: ignore[misc]
    """Prometheus scrapes this."""

    def initialize(self, desk: MetricsDesk) -> None:
        self._desk = desk

    def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE)
        self.write(expose(self._desk.readings()))
