"""``elastic-dit serve``: the HTTP API."""

from __future__ import annotations

import click

from elastic_dit.cli.options import cluster_options

__all__ = ["serve"]

DEFAULT_PORT = 8000
MAX_GPUS = 64


@click.command()
@cluster_options
@click.option(
    "--virtual-gpus", type=click.IntRange(1, MAX_GPUS), metavar="N",
    help="Start a cluster of N engines on this machine's CPU, in place of --scheduler.",
)  # fmt: skip
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen there."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, metavar="N",
    help="Listen there, and nowhere else if it is taken; 0 for any that is free.",
)  # fmt: skip
@click.option(
    "--api-key-file", type=click.Path(dir_okay=False), metavar="FILE",
    help="Keys, one a line; also ELASTIC_DIT_API_KEYS, with commas between. Without any, "
    "everybody who reaches the port may use it.",
)  # fmt: skip
@click.option(
    "--allow-anonymous", is_flag=True,
    help="Listen on other than loopback addresses though there are no keys.",
)  # fmt: skip
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
    help="Answer requests for this name, too; may be given again. Needed on loopback addresses "
    "without keys, for other names than localhost; elsewhere all will do until one is given.",
)  # fmt: skip
@click.option(
    "--ssl-certfile", type=click.Path(dir_okay=False), metavar="FILE",
    help="Certificate chain (PEM), for HTTPS.",
)  # fmt: skip
@click.option(
    "--ssl-keyfile", type=click.Path(dir_okay=False), metavar="FILE", help="Its private key (PEM)."
)
@click.option(
    "--root-path", default="", metavar="PATH",
    help="Path that a proxy in front takes off, such as /video.",
)  # fmt: skip
@click.option(
    "--config", "config_path", type=click.Path(dir_okay=False), metavar="FILE",
    help="Settings (YAML): the section http, and with --virtual-gpus the whole deployment.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Of the log on standard error.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
    show_default=True, help="Least that is logged.",
)  # fmt: skip
@click.option(
    "--otel", is_flag=True,
    help="Send OpenTelemetry spans where the OTEL_* variables say; needs elastic-dit[otel].",
)  # fmt: skip
def serve(**options: object) -> None:
    """Serve OpenAI's video and image API over a cluster, until Ctrl-C.

    Several of these over one cluster see the same jobs.
    """
    from elastic_dit.cli.serve_run import run_serve

    run_serve(options)
