"""``elastic-dit status``: what a running cluster does."""

from __future__ import annotations

import click

from elastic_dit.cli.options import cluster_options, json_option

__all__ = ["status"]


@click.command()
@cluster_options
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@json_option
def status(watch: bool, json_path: str | None, **cluster: str | None) -> None:
    """Show requests, queues and GPUs of a running cluster."""
    from elastic_dit.cli.status_run import run_status

    if watch and json_path is not None:
        raise click.UsageError("--watch and --json exclude each other")
    run_status(cluster, watch, json_path)
