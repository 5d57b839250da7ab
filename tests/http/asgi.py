"""Talk to the API inside this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import httpx2

from elastic_dit.config import HttpConfig
from elastic_dit.http.access import Access
from elastic_dit.http.app import make_app
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.keys import ApiKeys

LIMIT_S = 30.0
KEY, OTHER_KEY = "sk-first-key", "sk-other-key"


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; a hang fails it."""

    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def living(
    desk: JobDesk, config: HttpConfig | None = None, keys: ApiKeys | None = None, **options: Any
) -> AsyncIterator[Access]:
    """The app, between its start and its end."""
    access = make_app(desk, config, keys, **options)
    app: Any = access.app
    async with app.router.lifespan_context(app):
        yield access


def client_of(app: Access, key: str | None = None) -> httpx2.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://test", headers=headers)


@contextlib.asynccontextmanager
async def api(
    desk: JobDesk, config: HttpConfig | None = None, keys: ApiKeys | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the app over a desk."""
    async with living(desk, config, keys) as app, client_of(app) as client:
        yield client


class Caller:
    """One request, answered bit by bit, whose caller may hang up."""

    def __init__(
        self, app: Access, method: str, path: str, body: bytes = b"", key: bytes | None = None
    ) -> None:
        self._hung_up = asyncio.Event()
        self._body: list[tuple[bytes, bool]] = [(body, False)]
        self.status = 0
        self.parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"test"),
                (b"content-type", b"application/json"),
                *([(b"idempotency-key", key)] if key is not None else []),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def sends(self, body: bytes, *, more: bool) -> None:
        """In place of the whole body: this, and perhaps more that never comes."""
        self._body = [(body, more)]

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            body, more = self._body.pop()
            return {"type": "http.request", "body": body, "more_body": more}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        await self.parts.put(message)

    async def part(self) -> bytes:
        """The next piece of the body."""
        while (message := await self.parts.get())["type"] != "http.response.body":
            pass
        return bytes(message["body"])

    async def hang_up(self) -> None:
        """Close the connection; the app must notice."""
        self._hung_up.set()
        with contextlib.suppress(Exception):
            await self.task
