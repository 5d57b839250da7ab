"""Around every request: its id, its host, its body's limits, its line in the log, its metrics."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elastic_dit.config import HttpConfig
from elastic_dit.http.hosts import Hosts
from elastic_dit.http.logs import new_http_id, request_id
from elastic_dit.http.problems import Problem
from elastic_dit.http.waits import Waits
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.tally import OTHER, Readings, Tally

__all__ = ["Access"]

logger = logging.getLogger("elastic_dit.access")

_ID_HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_QUIET = ("/health", "/ready", "/metrics")
"""Asked every few seconds by machines: logged at debug level."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A stranger's own words would take the places of other series, of which there are so many."""
_LENGTH_DIGITS = 18
"""More than these make no difference, and Python refuses to read thousands."""
_CLOSED_REQUEST = 499
"""Nginx's status for a client that went before it had an answer."""


class Access:
    """Outermost of the app.

    Parameters
    ----------
    app : ASGI application
    config : HttpConfig
        Longer bodies than it says are refused with 413, as soon as that is known; slower ones
        with 408.
    waits : Waits
        Of the app.
    hosts : Hosts, optional
        Asked by any name without.

    Attributes
    ----------
    app : ASGI application
    tally : Tally
    open : int
        Requests that are being answered.
    """

    def __init__(
        self, app: ASGIApp, config: HttpConfig, waits: Waits, hosts: Hosts | None = None
    ) -> None:
        self.app = app
        self.waits = waits
        self._hosts = hosts
        self._max_body_bytes = config.max_body_bytes
        self._body_s = config.body_timeout_s
        self.tally = Tally()
        self.open = 0

    def __repr__(self) -> str:
        return f"<Access: {self.open} open>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        visit = _Visit(_own_id(headers))
        token = request_id.set(visit.id)
        self.open += 1
        try:
            body = _Limited(receive, self._max_body_bytes, self._body_s)
            await self._answer(scope, body, visit.sender(send))
        except Exception:
            if visit.status == _CLOSED_REQUEST:
                raise  # nothing was answered; else it has been, and logged
        finally:
            self.open -= 1
            self._note(scope, visit)
            request_id.reset(token)

    def readings(self) -> Readings:
        """Metrics of this front end."""
        readings = self.tally.readings()
        readings.put(catalogue.HTTP_OPEN, self.open)
        return readings

    async def _answer(self, scope: Scope, receive: _Limited, send: Send) -> None:
        app = self.app
        try:
            self._check(dict(scope["headers"]), receive)
        except Problem as problem:
            app = problem.response()
        await app(scope, receive, send)

    def _check(self, headers: Mapping[bytes, bytes], body: _Limited) -> None:
        if self._hosts is not None:
            self._hosts.check(headers.get(b"host", b"").decode("latin-1"))
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:_LENGTH_DIGITS]) > self._max_body_bytes:
            raise body.too_large()

    def _note(self, scope: Scope, visit: _Visit) -> None:
        route, method = _route(scope), scope["method"]
        counted = method if method in _METHODS else OTHER
        seconds = time.perf_counter() - visit.began
        self.tally.count(catalogue.HTTP_REQUESTS, counted, route, str(visit.status))
        self.tally.observe(catalogue.HTTP_LATENCY_S, seconds, counted, route)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        facts = {
            "method": method,
            "path": scope["path"],
            "status": visit.status,
            "duration_s": round(seconds, 6),
            "client": (scope.get("client") or ("",))[0],
        }
        logger.log(
            level,
            "%s %s -> %d in %.3f s", method, scope["path"], visit.status, seconds,
            extra={"facts": facts},
        )  # fmt: skip


class _Visit:
    """One request and what is known of its answer."""

    def __init__(self, http_id: str) -> None:
        self.id = http_id
        self.began = time.perf_counter()
        self.status = _CLOSED_REQUEST

    def sender(self, send: Send) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                headers = [*message.get("headers", ()), (_ID_HEADER, self.id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        return noting


class _Limited:
    """The body's bytes, so many at most and within so many seconds."""

    def __init__(self, receive: Receive, limit: int, limit_s: float) -> None:
        self._receive = receive
        self._limit = limit
        self._limit_s = limit_s
        self._seen = 0
        # None once the body is whole: whoever waits then waits for the client to go.
        self._until: float | None = asyncio.get_running_loop().time() + limit_s

    async def __call__(self) -> Message:
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise self._too_slow() from None
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise self.too_large()
        if not message.get("more_body", False):
            self._until = None
        return message

    def too_large(self) -> Problem:
        return _unread(413, f"the body has more than {self._limit} bytes", code="body_too_large")

    def _too_slow(self) -> Problem:
        return _unread(408, f"the body took more than {self._limit_s:g} s", code="body_too_slow")


def _unread(status: int, message: str, code: str) -> Problem:
    # The rest is not read, so this connection cannot be used again.
    close = {"Connection": "close"}
    return Problem(status, "invalid_request_error", message, code=code, headers=close)


def _own_id(headers: Mapping[bytes, bytes]) -> str:
    """The id the client or a proxy gave the request, or a fresh one."""
    given = headers.get(_ID_HEADER, b"")
    return given.decode() if _GOOD_ID.fullmatch(given) else new_http_id()


def _route(scope: Scope) -> str:
    """The route's pattern: ids in paths would make a series each."""
    return str(getattr(scope.get("route"), "path", "unknown"))
