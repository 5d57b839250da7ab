"""Runs the API: a port, a client of the cluster, uvicorn between them."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from elastic_dit.client import Client
from elastic_dit.config import ClientConfig, Config
from elastic_dit.errors import ConfigError
from elastic_dit.http.app import make_app
from elastic_dit.http.cluster_desk import ClusterDesk
from elastic_dit.http.hosts import Hosts
from elastic_dit.http.keys import KEYS_VARIABLE, ApiKeys
from elastic_dit.loopback import is_loopback

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["Place", "bind", "check_certificate", "check_exposure", "http_client_config", "serve"]

logger = logging.getLogger(__name__)

_BACKLOG = 2048
"""Connections that wait to be taken; more are refused by the operating system."""
_MAX_HEADER_BYTES = 2**16
"""Of a request's line and headers that are kept until the rest comes; with more it is refused."""
_BESIDE_WAITS = 1000
"""Connections that may be open beside those of `HttpConfig.max_waits`, idle ones included, before
requests are refused. Those that are being answered go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how to listen.

    Attributes
    ----------
    host : str
    port : int
        0 for any that is free.
    certificate, certificate_key : str or None
        PEM files, for HTTPS.
    prefix : str
        Path that a proxy takes off before it passes requests on, such as ``/video``.
    """

    host: str
    port: int
    certificate: str | None = None
    certificate_key: str | None = None
    prefix: str = ""


def check_exposure(host: str, keys: ApiKeys, *, allow_anonymous: bool) -> None:
    """Refuse to let everybody who can reach this machine use its GPUs by mistake.

    Raises
    ------
    ConfigError
    """
    if keys or allow_anonymous or is_loopback(host):
        return
    allowed = (
        f"a loopback address such as 127.0.0.1, unless there are API keys (--api-key-file, "
        f"{KEYS_VARIABLE}) or --allow-anonymous says that everybody may"
    )
    raise ConfigError("host", host, allowed)


def check_certificate(place: Place) -> None:
    """Fail before anything is started where HTTPS could not be spoken.

    Raises
    ------
    ConfigError
    """
    if place.certificate is None:
        return
    try:
        # An encrypted key would be asked its password for, of nobody.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            place.certificate, place.certificate_key, password=lambda: ""
        )
    except (OSError, ValueError) as error:
        files = f"{place.certificate}, {place.certificate_key}"
        allowed = f"a certificate and its unencrypted key, as PEM files ({error})"
        raise ConfigError("ssl-certfile, ssl-keyfile", files, allowed) from None


def bind(place: Place) -> socket.socket:
    """Take the port, before anything is started for it.

    Raises
    ------
    ConfigError
        Where it is taken, or the host is not this machine's.
    """
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(
            (place.host, place.port), family=family, backlog=_BACKLOG, reuse_port=False
        )
    except (OSError, UnicodeError, OverflowError) as error:
        address = f"{place.host}:{place.port}"
        raise ConfigError("host and port", address, f"free and of this machine ({error})") from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket, place: Place) -> str:
    """Address of a bound port.

    >>> place = Place(host="127.0.0.1", port=0)
    >>> with bind(place) as listener:
    ...     url_of(listener, place).startswith("http://127.0.0.1:")
    True
    """
    scheme = "https" if place.certificate else "http"
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}{place.prefix}"


def http_client_config(config: Config) -> Config:
    """Settings of the client within: no HTTP request waits long for a first engine."""
    waits = config.client
    ready_s = min(waits.ready_timeout_s, config.http.ready_timeout_s)
    return Config(
        client=ClientConfig(
            connect_timeout_s=waits.connect_timeout_s,
            ready_timeout_s=ready_s,
            submit_timeout_s=waits.submit_timeout_s,
        )
    )


async def serve(
    connect: Callable[[], Awaitable[Client]],
    listener: socket.socket,
    place: Place,
    *,
    config: Config,
    keys: ApiKeys,
    tracer: Tracer | None = None,
    when_ready: Callable[[str], None],
) -> None:
    """Answer requests until a signal ends it: SIGINT and SIGTERM, as uvicorn takes them.

    Then no more connections are taken, event streams end, and other requests that are open have
    ``config.http.shutdown_s`` seconds to do so.

    Parameters
    ----------
    connect : callable
        Makes an asynchronous client and connects it, in this event loop.
    listener : socket
        From `bind`.
    place : Place
    config : Config
        Of which the sections ``http`` and ``client`` count.
    keys : ApiKeys
    tracer : Tracer, optional
    when_ready : callable
        Called with the address once requests are answered.

    Raises
    ------
    SchedulerUnreachable
        Where no cluster answers.
    """
    desk = ClusterDesk(connect, config.http.results_bytes)
    await desk.client()
    hosts = Hosts.of(place.host, keys, config.http.allowed_hosts)
    app = make_app(desk, config.http, keys, hosts=hosts, tracer=tracer)
    url = url_of(listener, place)
    settings = _uvicorn_config(app, place, config)
    server = _Server(settings, lambda: when_ready(url), app.waits.closing.set)
    try:
        await server.serve(sockets=[listener])
    finally:
        await desk.close()


class _Server(uvicorn.Server):
    """Tells when it listens, and when it begins to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        when_ready: Callable[[], None],
        when_ending: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._when_ready = when_ready
        self._when_ending = when_ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._when_ending()
        await super().shutdown(sockets)


def _uvicorn_config(app: Any, place: Place, config: Config) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Of uvicorn's two parsers the one that bounds headers; it would take the other where it
        # happens to be installed.
        http="h11",
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        limit_concurrency=config.http.max_waits + _BESIDE_WAITS,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        root_path=place.prefix,
        timeout_graceful_shutdown=max(1, round(config.http.shutdown_s)),
        ssl_certfile=place.certificate,
        ssl_keyfile=place.certificate_key,
    )
