"""``elastic-dit profile``: what every stage takes on this hardware."""

from __future__ import annotations

import re

import click

from elastic_dit.cli.options import cluster_options, json_option

__all__ = ["profile"]

DEFAULT_RIB = "rib.sqlite"
DEFAULT_STEPS = 12
DEFAULT_LIMIT_S = 900.0
MAX_GPUS = 64


def _read_shapes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, int, int], ...]:
    shapes = []
    for value in values:
        match = re.fullmatch(r"([1-9]\d{0,5})[xX×]([1-9]\d{0,5})(?:[xX×]([1-9]\d{0,5}))?", value)
        if match is None:
            example = f"{value!r} is no shape: write WIDTHxHEIGHTxFRAMES, such as 96x64x17"
            raise click.BadParameter(example, context, parameter)
        shapes.append((int(match[1]), int(match[2]), int(match[3] or 1)))
    return tuple(dict.fromkeys(shapes))


def _read_dops(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= MAX_GPUS for part in parts):
        example = f"{value!r} are no degrees: write whole numbers from 1 to {MAX_GPUS}: 1,2,4"
        raise click.BadParameter(example, context, parameter)
    return tuple(sorted({int(part) for part in parts}))


@click.command()
@cluster_options
@click.option(
    "--virtual-gpus", type=click.IntRange(1, MAX_GPUS), metavar="N",
    help="Measure on engines started here for it, each a process on the CPU.",
)  # fmt: skip
@click.option(
    "--config", "config_path", type=click.Path(dir_okay=False), metavar="FILE",
    help="Settings (YAML) of those engines, such as the models.",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="By default the first one served.")
@click.option(
    "--shape", "shapes", multiple=True, callback=_read_shapes, metavar="WIDTHxHEIGHTxFRAMES",
    help="What to measure, any number of times; by default the model's own default.",
)  # fmt: skip
@click.option(
    "--dops", callback=_read_dops, metavar="LIST",
    help="Degrees of parallelism, such as 1,2,4; by default all that the model and GPUs allow.",
)  # fmt: skip
@click.option("--kind", metavar="NAME", help="Kind of GPU; by default every kind that is there.")
@click.option("--guidance", type=float, metavar="X", help="Classifier-free guidance; 1 is off.")
@click.option(
    "--steps", type=click.IntRange(2, 1000), default=DEFAULT_STEPS, show_default=True,
    metavar="N", help="Denoising steps of a long run; a short one has a third of them.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=3, show_default=True, metavar="N",
    help="Long and short runs of each shape and degree that count.",
)  # fmt: skip
@click.option(
    "--warm-up", type=click.IntRange(0, 100), default=1, show_default=True, metavar="N",
    help="Runs before them that do not.",
)  # fmt: skip
@click.option(
    "--load", type=click.Choice(["alone", "full"]), default="alone", show_default=True,
    help="One request at a time, or all GPUs at work: virtual GPUs share their cores.",
)  # fmt: skip
@click.option(
    "--rib", default=DEFAULT_RIB, show_default=True, metavar="URL",
    help="Where to write: a file (SQLite) or a database's URL.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_LIMIT_S,
    show_default=True, metavar="SECONDS", help="Longest time of the runs of one degree.",
)  # fmt: skip
@json_option
def profile(**options: object) -> None:
    """Measure every stage by shape and degree of parallelism, and find the optimal degree.

    Sends requests through the cluster as any client's, each at a forced degree; other requests
    wait meanwhile. `control.profile` in the settings of a cluster names what was written.
    """
    from elastic_dit.cli.profile_run import run_profile

    run_profile(options)
