"""Around every request: its id, its size limit, a line in the log, its place in the metrics."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elastic_dit.http.logs import new_http_id, request_id
from elastic_dit.http.problems import Problem
from elastic_dit.http.waits import Waits
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.tally import Readings, Tally

__all__ = ["Access"]

logger = logging.getLogger("elastic_dit.access")

_ID_HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_QUIET = ("/health", "/ready", "/metrics")
"""Asked every few seconds by machines: logged at debug level."""
_LENGTH_DIGITS = 18
"""More than these make no difference, and Python refuses to read thousands."""
_CLOSED_REQUEST = 499
"""Nginx's status for a client that went before it had an answer."""


class Access:
    """Outermost of the app.

    Parameters
    ----------
    app : ASGI application
    max_body_bytes : int
        Longer bodies are refused with 413, as soon as that is known.
    waits : Waits
        Of the app.

    Attributes
    ----------
    app : ASGI application
    tally : Tally
    open : int
        Requests that are being answered.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, waits: Waits) -> None:
        self.app = app
        self.waits = waits
        self._max_body_bytes = max_body_bytes
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
            await self._answer(scope, _Limited(receive, self._max_body_bytes), visit.sender(send))
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
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length[:_LENGTH_DIGITS]) > self._max_body_bytes:
            await receive.too_large().response()(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _note(self, scope: Scope, visit: _Visit) -> None:
        route, method = _route(scope), scope["method"]
        seconds = time.perf_counter() - visit.began
        self.tally.count(catalogue.HTTP_REQUESTS, method, route, str(visit.status))
        self.tally.observe(catalogue.HTTP_LATENCY_S, seconds, method, route)
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
    """The body's bytes, up to a limit."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise self.too_large()
        return message

    def too_large(self) -> Problem:
        message = f"the body has more than {self._limit} bytes"
        # The rest is not read, so this connection cannot be used again.
        headers = {"Connection": "close"}
        return Problem(
            413, "invalid_request_error", message, code="body_too_large", headers=headers
        )


def _own_id(headers: Mapping[bytes, bytes]) -> str:
    """The id the client or a proxy gave the request, or a fresh one."""
    given = headers.get(_ID_HEADER, b"")
    return given.decode() if _GOOD_ID.fullmatch(given) else new_http_id()


def _route(scope: Scope) -> str:
    """The route's pattern: ids in paths would make a series each."""
    return str(getattr(scope.get("route"), "path", "unknown"))
