"""``elastic-dit drill``: faults on purpose, and what becomes of the requests."""

from __future__ import annotations

import click

from elastic_dit.cli.options import COUNT, json_option

__all__ = ["NAMES", "drill"]

NAMES = (
    "kill-engine",
    "hang-engine",
    "kill-scheduler-actor",
    "kill-decoder",
    "slow-network",
    "corrupt-transfer",
    "out-of-memory",
    "client-vanishes",
    "cancel-storm",
    "full-queue",
    "restart",
)
"""Faults, in their order; those of `elastic_dit.drill.faults`."""


def _read_faults(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = NAMES if value == "all" else tuple(part.strip() for part in value.split(","))
    for name in names:
        if name not in NAMES:
            allowed = ", ".join(NAMES)
            raise click.BadParameter(f"{name!r} is none of {allowed}", context, parameter)
    return names


@click.command()
@click.option(
    "--virtual-gpus", type=click.IntRange(3, 64), default=4, show_default=True, metavar="N",
    help="Engines, each a process on the CPU.",
)  # fmt: skip
@click.option(
    "--requests", type=COUNT, default=40, show_default=True, metavar="N",
    help="Requests that the faults share, at least 2 each.",
)  # fmt: skip
@click.option(
    "--faults", default="all", show_default=True, callback=_read_faults, metavar="LIST",
    help="Names with commas between: " + ", ".join(NAMES) + ".",
)  # fmt: skip
@click.option(
    "--fake", is_flag=True, help="Pretended engines, which need no torch, not the embedded model."
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(10, 1000), default=16, show_default=True, metavar="N",
    help="Denoising steps of each request.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, metavar="N",
    help="Of the first request, and of the dice.",
)  # fmt: skip
@click.option(
    "--config", "config_path", type=click.Path(dir_okay=False), metavar="FILE",
    help="Settings; waits, the journal and the faults are the drill's own.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True,
    metavar="SECONDS", help="Longest wait for any one thing; a request that takes longer is lost.",
)  # fmt: skip
@json_option
def drill(**options: object) -> None:
    """Break a cluster of one's own in every known way, and count what is lost.

    Starts engines on this machine, runs requests, and meanwhile kills, hangs, cuts off, damages
    and floods, one fault after the other. Every result is compared with that of the same request
    without faults. The exit code is 0 where nothing was lost, made twice or other than without
    faults, else 1.
    """
    from elastic_dit.cli.drill_run import run_drill

    run_drill(options)
