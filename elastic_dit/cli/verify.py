"""``elastic-dit verify``: proof on this hardware that the degree of parallelism changes nothing."""

from __future__ import annotations

import click

from elastic_dit.cli.options import COUNT, json_option, seed_option, size_option, steps_option

__all__ = ["verify"]

DEFAULT_STEPS = 6
DEFAULT_LIMIT_S = 1800.0
DEFAULT_PROMPT = "a red circle moving left on a black background"


def _read_dops(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 64 for part in parts):
        example = f"{value!r} are no degrees: write whole numbers from 1 to 64, such as 1,2,4"
        raise click.BadParameter(example, context, parameter)
    return tuple(sorted({int(part) for part in parts}))


@click.command()
@click.option(
    "--model", default="embedded:shapes", show_default=True, metavar="PATH",
    help="Local diffusers folder, or embedded:NAME.",
)  # fmt: skip
@click.option(
    "--dops", default="1,2,4", show_default=True, callback=_read_dops, metavar="LIST",
    help="Degrees of parallelism for the standard plans.",
)  # fmt: skip
@click.option(
    "--plan", "plans", multiple=True, metavar="PLAN",
    help="In place of the standard plans, any number of times: stages with commas between, each "
    "a degree or, after an @, GPUs. 1,2,1 or @1,@1+3,@1",
)  # fmt: skip
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
    help="Virtual GPUs, each a process on the CPU, or this machine's own.",
)  # fmt: skip
@click.option(
    "--share-gpus", is_flag=True,
    help="Let processes share GPUs where there are too few; each loads the transformer.",
)  # fmt: skip
@click.option(
    "--dtype", default="float32", show_default=True, metavar="TYPE",
    help="Of the weights: float32, bfloat16 or float16.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(min=0, min_open=True), metavar="X",
    help="Largest error that passes, as a share of the largest latent; by default 1e-5 in "
    "float32, 0.05 in bfloat16, 0.01 in float16.",
)  # fmt: skip
@size_option
@click.option("--frames", type=COUNT, metavar="N", help="Frames; 1 is an image.")
@steps_option
@click.option("--guidance", type=float, metavar="X", help="Classifier-free guidance; 1 is off.")
@seed_option
@click.option(
    "--prompt", default=DEFAULT_PROMPT, show_default=True, metavar="TEXT", help="What to make."
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_LIMIT_S,
    show_default=True, metavar="SECONDS", help="Longest time of one plan, and of loading.",
)  # fmt: skip
@json_option
def verify(**options: object) -> None:
    """Prove on this hardware that changing the degree of parallelism changes no pixel.

    Makes one request's latents on one GPU, then again while the number of GPUs changes between
    steps, by several plans, each GPU a process of its own, and compares. Models that start from
    a picture are given one. The exit code is 0 where every plan that ran stays within the
    tolerance, else 1.
    """
    from elastic_dit.cli.verify_run import run_verify

    run_verify(options)
