"""Start what ``elastic-dit serve`` was asked for: keys, port, cluster, server."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from elastic_dit.cli.local_serving import demo_config, serving
from elastic_dit.cli.options import connect
from elastic_dit.config import Config
from elastic_dit.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from rich.console import Console

    from elastic_dit.client import Client
    from elastic_dit.http.server import Place

__all__ = ["run_serve"]


def run_serve(options: Mapping[str, Any]) -> None:
    """Serve until a signal.

    Parameters
    ----------
    options : mapping of str to Any
        Values of the command's options, by their names.

    Raises
    ------
    click.UsageError
        Where they contradict each other.
    ElasticDitError
        Where a setting is wrong, the port is taken, or the cluster does not start or answer.
    """
    _check_extra()
    from rich.console import Console

    from elastic_dit.http.keys import ApiKeys
    from elastic_dit.http.logs import configure_logs
    from elastic_dit.http.server import (
        bind,
        check_certificate,
        check_exposure,
        http_client_config,
        serve,
    )

    config = _config(options)
    keys = ApiKeys.load(options["api_key_file"])
    check_exposure(options["host"], keys, allow_anonymous=options["allow_anonymous"])
    place = _place(options)
    check_certificate(place)
    console = Console(highlight=False)
    tracer = _tracer(options["otel"])
    # The port first: it is cheap to find taken, a cluster is not cheap to start for nothing.
    with bind(place) as listener, _cluster(options, config, console) as cluster:
        configure_logs(options["log_format"], options["log_level"])
        within = http_client_config(config)

        async def connected() -> Client:
            return await connect(cluster, config=within, asynchronous=True)

        asyncio.run(
            serve(
                connected,
                listener,
                place,
                config=config,
                keys=keys,
                tracer=tracer,
                when_ready=lambda url: _announce(console, url),
            )
        )


def _check_extra() -> None:
    for module in ("fastapi", "uvicorn", "python_multipart"):
        if importlib.util.find_spec(module) is None:
            allowed = f"run where elastic-dit[serve] is installed: {module} is missing"
            raise ConfigError("serve", "elastic-dit serve", allowed)


def _config(options: Mapping[str, Any]) -> Config:
    named = options["scheduler"] or options["scheduler_file"]
    if options["virtual_gpus"] and named:
        raise click.UsageError("--virtual-gpus starts a cluster; --scheduler names one")
    if options["config_path"]:
        config = Config.load(options["config_path"])
    else:
        config = demo_config() if options["virtual_gpus"] else Config()
    return _with_hosts(config, options["allowed_hosts"])


def _with_hosts(config: Config, further: Sequence[str]) -> Config:
    names = (*config.http.allowed_hosts, *further)
    http = Config.parse({"http": {**config.http.model_dump(), "allowed_hosts": names}}).http
    return config.model_copy(update={"http": http})


def _place(options: Mapping[str, Any]) -> Place:
    from elastic_dit.http.server import Place

    if bool(options["ssl_certfile"]) != bool(options["ssl_keyfile"]):
        raise click.UsageError("--ssl-certfile and --ssl-keyfile go together")
    prefix = options["root_path"].rstrip("/")
    if prefix and not prefix.startswith("/"):
        raise ConfigError("root-path", prefix, "a path that begins with /")
    return Place(
        host=options["host"],
        port=options["port"],
        certificate=options["ssl_certfile"],
        certificate_key=options["ssl_keyfile"],
        prefix=prefix,
    )


def _tracer(wanted: bool) -> Tracer | None:
    if not wanted:
        return None
    from opentelemetry import trace

    from elastic_dit.http.tracing import export_spans

    export_spans()
    return trace.get_tracer("elastic_dit")


@contextmanager
def _cluster(
    options: Mapping[str, Any], config: Config, console: Console
) -> Iterator[Mapping[str, Any]]:
    """Options that name the cluster: the user's, or those of one that lives within the block."""
    if not options["virtual_gpus"]:
        yield options
        return
    with serving(options["virtual_gpus"], config, console) as client:
        yield {**options, "scheduler": client.dask.scheduler.address}


def _announce(console: Console, url: str) -> None:
    console.print(f"elastic-dit serves at {url} (Ctrl-C ends it)", soft_wrap=True)
