"""``elastic-dit train-predictor``: from simulations, and from what a cluster recorded."""

from __future__ import annotations

import click

from elastic_dit.cli.options import COUNT

__all__ = ["train_predictor"]


@click.command()
@click.argument("output", type=click.Path(dir_okay=False))
@click.option(
    "--situations", type=click.IntRange(0, 100_000), default=160, show_default=True, metavar="N",
    help="Situations to simulate; with 0, telemetry must say it all.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, metavar="N",
    help="Of the draw of situations. 3 is that of the held-out ones of `reproduce predictor`.",
)  # fmt: skip
@click.option(
    "--telemetry", type=click.Path(dir_okay=False), multiple=True, metavar="FILE",
    help="Examples recorded by a cluster, any number of times.",
)  # fmt: skip
@click.option("--processes", type=COUNT, metavar="N", help="Default: one for each core.")
def train_predictor(
    output: str, situations: int, seed: int, telemetry: tuple[str, ...], processes: int | None
) -> None:
    """Train the predictor of instance ratios and write it to OUTPUT.

    The one that ships with the package was made with the defaults; the same seed gives the same
    predictor.
    """
    from elastic_dit.cli.train_predictor_run import run_train_predictor

    run_train_predictor(output, situations, seed, telemetry, processes)
