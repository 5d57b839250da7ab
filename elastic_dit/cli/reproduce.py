"""``elastic-dit reproduce``: the papers' experiments, theirs beside ours."""

from __future__ import annotations

import click

from elastic_dit.cli.options import COUNT, json_option

__all__ = ["reproduce"]


@click.command()
@click.argument(
    "experiment", type=click.Choice(["ddit", "disagfusion", "mixed-priority", "predictor"])
)
@click.option(
    "--output", type=click.Path(file_okay=False), default="docs/results", show_default=True,
    metavar="DIR", help="Folder for the page and its pictures.",
)  # fmt: skip
@click.option("--seeds", type=COUNT, metavar="N", help="Runs per cell; default all.")
@click.option(
    "--requests",
    type=COUNT,
    metavar="N",
    help="Requests per run (ddit, predictor); default 100 and 200.",
)
@click.option("--processes", type=COUNT, metavar="N", help="Default: one for each core.")
@json_option
def reproduce(
    experiment: str,
    output: str,
    seeds: int | None,
    requests: int | None,
    processes: int | None,
    json_path: str | None,
) -> None:
    """Run a paper's experiment in the simulator, on the controller that runs in production.

    \b
    ddit            10 mixes x 5 arrival rates x all policies, and a burst on 64 GPUs
    disagfusion     workloads that shift, placement that follows; scaling; jitter
    mixed-priority  deadlines and priorities: GF-DiT's workloads and listed figures
    predictor       instance ratios on held-out workloads, beside the best static split

    Writes a page with tables and pictures; says what reproduces, what does not, and why.
    """  # noqa: D301 (click's mark for lines to be kept)
    from elastic_dit.cli.reproduce_run import run_reproduce

    run_reproduce(experiment, output, seeds, requests, processes, json_path)
