"""Ask a running cluster how it is, once or until interrupted."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from elastic_dit.cli.options import connect
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.status_tables import draw_status

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.client import Client

__all__ = ["run_status"]

WATCH_INTERVAL_S = 1.0
"""Seconds between two looks of ``--watch``."""


def run_status(cluster: Mapping[str, str | None], watch: bool, json_path: str | None) -> None:
    """Print the status, or write it as JSON.

    Parameters
    ----------
    cluster : mapping of str to str or None
        Values of `elastic_dit.cli.options.cluster_options`.
    watch : bool
        Redraw until interrupted.
    json_path : str or None
        Where to write the plain data (`elastic_dit.cluster.plane.status.status_of` documents it)
        instead of drawing it.

    Raises
    ------
    ElasticDitError
        Where the cluster does not answer, or the file cannot be written.
    """
    check_json_path(json_path)
    console = human_console(json_path)
    with connect(cluster) as client:
        if watch:
            _watch(client, console)
        elif json_path is not None:
            write_json(json_path, json.dumps(client.status(), indent=2))
        else:
            console.print(draw_status(client.status()))


def _watch(client: Client, console: Console) -> None:
    from rich.live import Live

    never = threading.Event()
    with Live(draw_status(client.status()), console=console, auto_refresh=False) as live:
        while not never.wait(WATCH_INTERVAL_S):
            live.update(draw_status(client.status()), refresh=True)
