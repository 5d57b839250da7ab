"""``elastic-dit plan``: what a trace would need, and what a policy would do with it."""

from __future__ import annotations

import click

from elastic_dit.cli.options import COUNT, json_option

__all__ = ["plan"]

DEFAULT_GPUS = 8
DEFAULT_MOST = 512
MAX_GPUS = 4096


@click.command()
@click.option(
    "--trace", type=click.Path(dir_okay=False), metavar="FILE",
    help="Requests: a CSV, lines Request(...), or mixed-priority JSON.",
)  # fmt: skip
@click.option(
    "--mix", metavar="NAME",
    help="Or a published workload: ddit:1:1:1@0.5, mixed-priority:tridentserve@1.5.",
)  # fmt: skip
@click.option("--requests", type=COUNT, metavar="N", help="Requests of a ddit mix; default 100.")
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, metavar="N", help="Of a mix.")
@click.option(
    "--gpus", type=click.IntRange(1, MAX_GPUS), metavar="N",
    help=f"GPUs in all, default {DEFAULT_GPUS}; with --target the most to try, {DEFAULT_MOST}.",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1, MAX_GPUS), metavar="N",
    help="Machines they are in; default one for every 8.",
)  # fmt: skip
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME",
    help="Dispatch policy, may be given several times; default elastic.",
)  # fmt: skip
@click.option(
    "--cost", metavar="FILE",
    help="ddit, mixed-priority, a profile (rib.sqlite), a CSV of latencies or a folder of JSON.",
)  # fmt: skip
@click.option(
    "--handover", type=click.FloatRange(0.0, 60.0), default=0.003, show_default=True,
    metavar="SECONDS", help="Time of every change of a request's GPUs.",
)  # fmt: skip
@click.option("--target", metavar="WHAT", help="Find the fewest GPUs: p99<60, attainment>0.95.")
@click.option(
    "--output", type=click.Path(file_okay=False), metavar="DIR", help="Folder for plan.png."
)
@click.option(
    "--trace-out", type=click.Path(dir_okay=False), metavar="FILE",
    help="The first policy's run, for Chrome's or Perfetto's viewer.",
)  # fmt: skip
@json_option
def plan(
    trace: str | None,
    mix: str | None,
    requests: int | None,
    seed: int,
    gpus: int | None,
    nodes: int | None,
    policies: tuple[str, ...],
    cost: str | None,
    handover: float,
    target: str | None,
    output: str | None,
    trace_out: str | None,
    json_path: str | None,
) -> None:
    """Simulate a trace, on the controller that runs in production.

    Without a target: latencies, deadlines met and cost on so many GPUs. With one: how many GPUs it
    takes, such as `elastic-dit plan --trace trace.csv --target "p99<60"`.
    """
    from elastic_dit.cli.plan_run import PlanOptions, run_plan

    if (trace is None) == (mix is None):
        raise click.UsageError("say which requests: either --trace FILE or --mix NAME")
    if target is not None and nodes is not None:
        raise click.UsageError("--target tries machines of 8 GPUs: leave out --nodes")
    options = PlanOptions(
        trace=trace,
        mix=mix,
        requests=requests,
        seed=seed,
        gpus=gpus or (DEFAULT_GPUS if target is None else DEFAULT_MOST),
        nodes=nodes,
        policies=policies or ("elastic",),
        cost=cost,
        handover_s=handover,
        target=target,
        output=output,
        trace_out=trace_out,
        json_path=json_path,
    )
    run_plan(options)
