"""The commands of ``elastic-dit``. What they need is imported when they run: help is instant."""

from __future__ import annotations

import click

from elastic_dit._version import __version__
from elastic_dit.cli.demo import demo
from elastic_dit.cli.drill import drill
from elastic_dit.cli.generate import generate
from elastic_dit.cli.plan import plan
from elastic_dit.cli.profile import profile
from elastic_dit.cli.reproduce import reproduce
from elastic_dit.cli.serve import serve
from elastic_dit.cli.status import status
from elastic_dit.cli.train_predictor import train_predictor
from elastic_dit.cli.verify import verify

__all__ = ["commands"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="elastic-dit", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def commands(debug: bool) -> None:
    """Elastic serving of diffusion transformers on Dask."""
    del debug  # `elastic_dit.cli.main` looks for it before anything is imported


for command in (
    demo,
    drill,
    generate,
    plan,
    profile,
    reproduce,
    serve,
    status,
    train_predictor,
    verify,
):
    commands.add_command(command)
