"""The port, the certificate and uvicorn between them."""

from __future__ import annotations

import asyncio
import ssl

import httpx2
import pytest
from distributed import Security

from elastic_dit.config import Config
from elastic_dit.errors import ConfigError
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.server import (
    Place,
    _Server,
    _uvicorn_config,
    bind,
    check_certificate,
    http_client_config,
    url_of,
)
from tests.http.asgi import run


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


def test_https(place, tmp_path):
    trusting = ssl.create_default_context(cafile=tmp_path / "tls_ca_file")
    trusting.check_hostname = False  # Dask's temporary certificates are for no host

    async def main():
        check_certificate(place)
        started = asyncio.Event()
        settings = _uvicorn_config(make_app(FakeDesk()), place, Config())
        with bind(place) as listener:
            ending = asyncio.Event()
            server = _Server(settings, started.set, ending.set)
            url = url_of(listener, place)
            running = asyncio.ensure_future(server.serve(sockets=[listener]))
            await started.wait()
            async with httpx2.AsyncClient(verify=trusting) as client:
                answer = await client.get(f"{url}/health")
                assert answer.json() == {"status": "alive"}
                assert "server" not in answer.headers
            server.should_exit = True
            await running
            assert ending.is_set()

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
