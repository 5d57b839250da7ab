"""Measure, store, tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from elastic_dit.cli.options import connect
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.profile_schema import LatencyReport, OptimumReport, ProfileReport
from elastic_dit.cli.ready import wait_until_settled
from elastic_dit.cli.reproduce_tables import figure_table
from elastic_dit.config import Config
from elastic_dit.cost import step_time_cuts
from elastic_dit.errors import ConfigError, NotReady
from elastic_dit.request import Stage
from elastic_dit.rib.book import optimal_dops

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from elastic_dit.cli.profile_measure import Profiler
    from elastic_dit.client import Client
    from elastic_dit.rib import Latency
    from elastic_dit.rib.store import RibStore

__all__ = ["run_profile"]


def run_profile(options: Mapping[str, Any]) -> None:
    """Do it all.

    Parameters
    ----------
    options : mapping of str to Any
        Of the command, by name.

    Raises
    ------
    ElasticDitError
        Where the cluster is not there, a shape or degree cannot be, a run fails, or the profile
        cannot be written.
    """
    from elastic_dit.rib.store import RibStore

    check_json_path(options["json_path"])
    console = human_console(options["json_path"])
    store = RibStore(options["rib"])
    with _cluster(options, console) as client:
        latencies, software = _measure(client, options, store, console)
    report = _report(latencies, software, store, options)
    console.print(_table(report))
    for line in _optima(report):
        console.print(line, soft_wrap=True)
    console.print(f"Written to {store.name}.", soft_wrap=True)
    write_json(options["json_path"], report.model_dump_json(indent=2))


@contextmanager
def _cluster(options: Mapping[str, Any], console: Console) -> Iterator[Client]:
    """The cluster to measure on: a running one, or one for the time of it."""
    from elastic_dit.cli.local_serving import demo_config, serving

    gpus, path = options["virtual_gpus"], options["config_path"]
    is_named = options["scheduler"] or options["scheduler_file"]
    if gpus is None:
        if path is not None:
            raise click.UsageError("--config is for engines started here: give --virtual-gpus too")
        with connect(options) as client:
            wait_until_settled(client, 1, client.config.client.ready_timeout_s)
            yield client
    elif is_named:
        raise click.UsageError("--virtual-gpus starts a cluster here: leave out --scheduler")
    else:
        config = Config.load(path) if path is not None else demo_config()
        with serving(gpus, config, console) as client:
            yield client


def _measure(
    client: Client, options: Mapping[str, Any], store: RibStore, console: Console
) -> tuple[list[Latency], dict[str, str]]:
    from elastic_dit.cli.profile_measure import Profiler

    latencies: list[Latency] = []
    software: dict[str, str] = {}
    for kind in _kinds(client, options["kind"]):
        profiler = Profiler(
            client=client, kind=kind, steps=options["steps"], repeats=options["repeats"],
            warm_up=options["warm_up"], load=options["load"], limit_s=options["timeout"],
        )  # fmt: skip
        for shape in options["shapes"] or (None,):
            found, software[kind] = _measure_shape(profiler, shape, options, console)
            store.save(found, software[kind])
            latencies += found
    return latencies, software


def _measure_shape(
    profiler: Profiler,
    shape: tuple[int, int, int] | None,
    options: Mapping[str, Any],
    console: Console,
) -> tuple[list[Latency], str]:
    names = ("width", "height", "num_frames")
    fields = dict(zip(names, shape, strict=True)) if shape is not None else {}
    chosen = {"model": options["model"], "guidance_scale": options["guidance"], **fields}
    steps = {"num_inference_steps": profiler.steps}
    degrees = profiler.examine({k: v for k, v in {**chosen, **steps}.items() if v is not None})
    wanted = options["dops"] or degrees.dops
    for dop in wanted:
        if dop not in degrees.dops:
            allowed = ", ".join(map(str, degrees.dops)) or "none: no GPU holds the transformer"
            raise ConfigError("dops", dop, f"one of {allowed}")
    if not wanted:
        raise NotReady(f"no GPU of kind {profiler.kind} holds the transformer of the model")
    latencies: list[Latency] = []
    request = degrees.request
    size = f"{request.width}x{request.height}, {request.num_frames} frames"
    for dop in wanted:
        with console.status(f"{request.model} {size} at degree {dop}"):
            latencies += profiler.measure(degrees, dop)
    return latencies, degrees.software


def _kinds(client: Client, wanted: str | None) -> list[str]:
    kinds = sorted({gpu["kind"] for gpu in client.status()["gpus"]})
    if wanted is None:
        return kinds
    if wanted not in kinds:
        raise ConfigError("kind", wanted, f"one of {', '.join(kinds)}")
    return [wanted]


def _report(
    latencies: list[Latency], software: dict[str, str], store: RibStore, options: Mapping[str, Any]
) -> ProfileReport:
    optima = []
    for key, dop in optimal_dops(latencies).items():
        steps = {
            each.key.dop: each.seconds for each in latencies if each.key._replace(dop=1) == key
        }
        optima.append(
            OptimumReport(
                model=key.model, kind=key.kind, width=key.width, height=key.height,
                frames=key.num_frames, guided=key.guided, dop=dop, cuts=step_time_cuts(steps),
            )
        )  # fmt: skip
    return ProfileReport(
        software=software,
        rib=store.name,
        load=options["load"],
        latencies=tuple(map(LatencyReport.of, latencies)),
        optima=tuple(optima),
    )


def _table(report: ProfileReport) -> Table:
    figures = ("DoP", "s (DiT: a step)", "±", "once", "runs")
    versions = set(report.software.values())
    each = versions if len(versions) == 1 else (f"{v} on {k}" for k, v in report.software.items())
    title = "\n".join(f"With {version}" for version in each)
    table = figure_table(title, ("model", "kind", "size", "stage"), figures)
    for row in report.latencies:
        table.add_row(
            row.model, row.kind, f"{row.width}x{row.height}x{row.frames}", f"{row.stage}",
            f"{row.dop}", f"{row.seconds:.4f}", f"{row.spread_seconds:.4f}",
            f"{row.setup_seconds:.4f}" if row.stage is Stage.DIT else "", f"{row.repeats}",
        )  # fmt: skip
    return table


def _optima(report: ProfileReport) -> Iterator[str]:
    for row in report.optima:
        cuts = ", ".join(f"{cut:.0%} by {dop}" for dop, cut in row.cuts.items())
        size = f"{row.width}x{row.height}x{row.frames}"
        yield f"{row.model} {size} on {row.kind}: optimal DoP {row.dop}" + (
            f"; doubling cuts {cuts}" if cuts else ""
        )
