"""The port, the certificate and uvicorn between them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import httpx2
import pytest
from distributed import Security

from elastic_dit.config import Config
from elastic_dit.errors import ConfigError
from elastic_dit.http.access import Access
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.server import (
    _MAX_HEADER_BYTES,
    Place,
    _Server,
    _uvicorn_config,
    bind,
    check_certificate,
    http_client_config,
    url_of,
)
from tests.http.asgi import run

HERE = Place(host="127.0.0.1", port=0)


@pytest.fixture
def place(tmp_path) -> Place:
    security = Security.temporary()
    for name in ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key"):
        (tmp_path / name).write_text(getattr(security, name))
    return Place(
        host="127.0.0.1",
        port=0,
        certificate=str(tmp_path / "tls_scheduler_cert"),
        certificate_key=str(tmp_path / "tls_scheduler_key"),
    )


@contextlib.asynccontextmanager
async def serving(app: Access, place: Place, config: Config) -> AsyncIterator[str]:
    """The address of a running server; it ends as it would by a signal."""
    started, ending = asyncio.Event(), asyncio.Event()
    server = _Server(_uvicorn_config(app, place, config), started.set, ending.set)
    with bind(place) as listener:
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        await started.wait()
        yield url_of(listener, place)
        server.should_exit = True
        await running
        assert ending.is_set()


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


def test_https(place, tmp_path):
    trusting = ssl.create_default_context(cafile=tmp_path / "tls_ca_file")
    trusting.check_hostname = False  # Dask's temporary certificates are for no host

    async def main():
        check_certificate(place)
        async with (
            serving(make_app(FakeDesk()), place, Config()) as url,
            httpx2.AsyncClient(verify=trusting) as client,
        ):
            answer = await client.get(f"{url}/health")
            assert answer.json() == {"status": "alive"}
            assert "server" not in answer.headers

    run(main())


def test_a_head_that_is_too_long_is_no_request():
    async def main():
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: "
        end = b"\r\n\r\n"
        async with serving(make_app(FakeDesk()), HERE, Config()) as url:
            for size, sent, status in (
                (_MAX_HEADER_BYTES, end, b"200"),
                (_MAX_HEADER_BYTES + 1, b"", b"400"),  # it is not waited for what would follow
            ):
                reader, writer = await connected(url)
                writer.write(head.ljust(size, b"a") + sent)
                assert (await reader.read()).split()[1] == status
                writer.close()

    run(main())


def test_too_many_connections_are_refused_and_an_event_stream_goes_on(monkeypatch):
    monkeypatch.setattr("elastic_dit.http.server._BESIDE_WAITS", 2)
    config = Config.parse({"http": {"max_waits": 1, "shutdown_s": 1}})

    async def main():
        desk = FakeDesk()
        app = make_app(desk, config.http)
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with (
            serving(app, HERE, config) as url,
            httpx2.AsyncClient(base_url=url, limits=limits) as client,
        ):
            job_id = (await client.post("/v1/videos", json={"prompt": "a ring"})).json()["id"]
            async with client.stream("GET", f"/v1/videos/{job_id}/events") as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == "event: progress"
                assert (await client.get("/health")).status_code == 200
                idle = [await connected(url) for _ in range(2)]
                await until(client, 503)
                desk.complete(job_id)
                assert "event: completed" in [line async for line in lines]
            for _, writer in idle:
                writer.close()
            await until(client, 200)

    async def until(client: httpx2.AsyncClient, status: int) -> None:
        while (await client.get("/health")).status_code != status:
            pass  # `run` bounds it

    run(main())


def test_what_is_no_certificate(place, tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for wrong in ("/nowhere.pem", str(empty)):
        with pytest.raises(ConfigError, match="PEM"):
            check_certificate(Place(host="a", port=0, certificate=wrong, certificate_key=wrong))


def test_no_request_waits_as_long_for_a_first_engine_as_other_clients_do():
    config = Config.parse({"client": {"connect_timeout_s": 3.0}})
    within = http_client_config(config).client
    assert within.ready_timeout_s == config.http.ready_timeout_s < config.client.ready_timeout_s
    assert within.connect_timeout_s == 3.0
