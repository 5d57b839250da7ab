"""``elastic-dit demo``: the whole path on this machine, with pictures to look at."""

from __future__ import annotations

import click

from elastic_dit.cli.options import json_option, steps_option

__all__ = ["demo"]

DEFAULT_REQUESTS = 18
DEFAULT_GPUS = 4
MAX_REQUESTS, MAX_GPUS = 1000, 64


@click.command()
@click.option(
    "--output", type=click.Path(file_okay=False), default="outputs", show_default=True,
    metavar="DIR", help="Folder for clips, sheet.png, timeline.png and report.json.",
)  # fmt: skip
@click.option(
    "--virtual-gpus", type=click.IntRange(1, MAX_GPUS), default=DEFAULT_GPUS, show_default=True,
    metavar="N", help="Engines to start, each a process on the CPU.",
)  # fmt: skip
@click.option(
    "--requests", type=click.IntRange(1, MAX_REQUESTS), default=DEFAULT_REQUESTS,
    show_default=True, metavar="N", help="Clips and images to make.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0, max=2**32), default=0, show_default=True, metavar="N",
    help="Draws the prompts; request i has seed N + i.",
)  # fmt: skip
@steps_option
@click.option(
    "--compare/--no-compare", default=True, show_default=True,
    help="Also run the plain diffusers pipeline on the same requests, and compare.",
)  # fmt: skip
@click.option(
    "--config", "config_path", type=click.Path(dir_okay=False), metavar="FILE",
    help="Settings (YAML), such as configs/demo.yaml.",
)  # fmt: skip
@json_option
def demo(
    output: str,
    virtual_gpus: int,
    requests: int,
    seed: int,
    steps: int | None,
    compare: bool,
    config_path: str | None,
    json_path: str | None,
) -> None:
    """Make a dozen clips on a cluster of virtual GPUs on this machine.

    Starts a Dask cluster with the embedded model, sends it mixed prompts, and shows every request
    on its way through encoder, transformer and decoder engines. Ends with a table: how many
    clips show what was asked for, by image analysis, and how many of the plain pipeline's.
    """
    from elastic_dit.cli.demo_run import DemoOptions, run_demo

    options = DemoOptions(
        output=output,
        virtual_gpus=virtual_gpus,
        requests=requests,
        seed=seed,
        steps=steps,
        compare=compare,
        config_path=config_path,
        json_path=json_path,
    )
    run_demo(options)
