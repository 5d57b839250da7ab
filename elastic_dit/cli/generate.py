"""``elastic-dit generate``: one prompt, one file."""

from __future__ import annotations

import click

from elastic_dit.cli.options import (
    COUNT,
    cluster_options,
    json_option,
    seed_option,
    size_option,
    steps_option,
)

__all__ = ["generate"]

DEFAULT_TIMEOUT_S = 3600.0


@click.command()
@click.argument("prompt")
@cluster_options
@click.option("--model", metavar="NAME", help="Served model; the cluster's first by default.")
@size_option
@click.option("--frames", type=COUNT, metavar="N", help="Frames; 1 is an image.")
@click.option("--fps", type=COUNT, metavar="N", help="Frames per second.")
@steps_option
@click.option("--guidance", type=float, metavar="X", help="Classifier-free guidance; 1 is off.")
@seed_option
@click.option("--negative-prompt", metavar="TEXT", help="What to steer away from.")
@click.option(
    "--image", type=click.Path(), metavar="FILE",
    help="Picture to start from (PNG, JPEG, WebP), for models that need one. Without --size the "
    "video has its proportions.",
)  # fmt: skip
@click.option(
    "--output", "-o", type=click.Path(), metavar="FILE",
    help="Its suffix names the format: mp4, gif, webp, png, jpg. By default named after the "
    "prompt, in the current folder.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_TIMEOUT_S,
    show_default=True, metavar="SECONDS", help="Longest wait for the result.",
)  # fmt: skip
@json_option
def generate(prompt: str, **options: object) -> None:
    """Make one video or image on a running cluster and save it.

    What is not given takes the model's default. PROMPT is one argument: put it in quotes.
    """
    from elastic_dit.cli.generate_run import run_generate

    run_generate(prompt, options)
