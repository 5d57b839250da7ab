"""Options of ``elastic-dit-worker``: those of ``dask worker``, inherited, and its own."""

from __future__ import annotations

import copy

import click

__all__ = ["inherited_options", "own_options"]

_DROPPED = frozenset({"n_workers", "worker_class", "dashboard_prefix", "version"})
"""Of ``dask worker``: how many processes there are follows from the GPUs, and of which class."""

_DEFAULTS = {"memory_limit": "0"}
"""Dask's memory thresholds know nothing of weights in host memory, so they are off."""


def inherited_options() -> list[click.Parameter]:
    """Options and arguments of ``dask worker`` that make sense here.

    Deployment tools pass them without asking: dask-jobqueue and the Kubernetes operator start
    whatever worker command they are given with the same words.
    """
    from distributed.cli.dask_worker import main as dask_worker

    params = [copy.copy(p) for p in dask_worker.params if p.name not in _DROPPED]
    for param in params:
        if param.name in _DEFAULTS:
            param.default = _DEFAULTS[param.name]
        if isinstance(param, click.Option) and param.help:
            param.help = param.help.replace(" with '--nworkers'", "").replace(
                "with --nworkers", "for several GPUs"
            )
    return params


def own_options() -> list[click.Parameter]:
    """What ``dask worker`` has no word for."""
    return [
        click.Option(
            ["--devices"],
            metavar="LIST",
            help="GPUs to serve from, like 0,1,2.  [default: CUDA_VISIBLE_DEVICES, else all]",
        ),
        click.Option(
            ["--virtual-gpus"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Serve from CPUs instead, as if there were N GPUs.",
        ),
        click.Option(
            ["--config", "config_file"],
            metavar="FILE",
            help="Settings of the deployment, YAML.  [default: the embedded model]",
        ),
        click.Option(
            ["--control-worker/--no-control-worker"],
            default=True,
            show_default=True,
            help="Also start the worker that plans placements; one in the cluster is enough.",
        ),
        click.Option(
            ["--nworkers"],
            type=int,
            hidden=True,  # dask-jobqueue says it; it must be the number of GPUs
        ),
    ]
