"""What the demo leaves behind: comparison, report, pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import track

from elastic_dit._version import __version__
from elastic_dit.config import Config, ModelConfig
from elastic_dit.files import write_atomically
from elastic_dit.report.build import Ended, first_start, request_report, spans, tile, totals
from elastic_dit.report.plain import frames_digest, run_plain
from elastic_dit.report.schema import ClusterReport, DemoReport, JudgeReport, PlainReport
from elastic_dit.report.sheet import draw_sheet
from elastic_dit.report.timeline import draw_timeline

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Made", "assemble", "compare", "write_pictures"]


@dataclass(frozen=True)
class Made:
    """One request of the demo, over and judged.

    Parameters
    ----------
    number : int
        Counts from 1.
    ended : Ended
        How it ended.
    judged : JudgeReport or None
        What its result shows; None without a result.
    """

    number: int
    ended: Ended
    judged: JudgeReport | None


def compare(
    made: Sequence[Made], model: ModelConfig, config: Config, console: Console
) -> dict[str, PlainReport]:
    """Make the same clips with the plain pipeline.

    Parameters
    ----------
    made : sequence of Made
        Those with a result are compared.
    model : ModelConfig
        The model that made them.
    config : Config
        For the engines' number of threads, which decides the last bits of a sum.
    console : rich.console.Console
        Shows how far it is.

    Returns
    -------
    dict of str to PlainReport
        By request id.
    """
    results = [one.ended.result for one in made if one.ended.result is not None]
    ours = {result.request.request_id: frames_digest(result.frames) for result in results}
    runs = run_plain(model, [result.request for result in results], config.engine.cpu_threads)
    title = "The same with the plain pipeline"
    return {
        run.request_id: PlainReport(
            ok=run.ok, identical=run.digest == ours[run.request_id], seconds=run.seconds
        )
        for run in track(runs, title, total=len(results), console=console)
    }


def assemble(
    made: Sequence[Made],
    plain: Mapping[str, PlainReport],
    config: Config,
    virtual_gpus: int,
    wall_s: float,
) -> DemoReport:
    """Put all that is known into the report.

    Parameters
    ----------
    made : sequence of Made
        All requests, in order.
    plain : mapping of str to PlainReport
        Comparisons by request id; may be empty.
    config : Config
        Of the cluster.
    virtual_gpus : int
        Engines there were.
    wall_s : float
        From the first submission to the last result, seconds.

    Returns
    -------
    DemoReport
    """
    origin_s = first_start(one.ended for one in made)
    reports = tuple(
        request_report(one.ended, origin_s, one.judged).model_copy(
            update={"plain": plain.get(one.ended.request.request_id)}
        )
        for one in made
    )
    cluster = ClusterReport(
        virtual_gpus=virtual_gpus,
        cpus=len(os.sched_getaffinity(0)),
        cpu_threads=config.engine.cpu_threads,
        placement=config.placement.policy,
        dispatch=config.control.dispatch,
    )
    return DemoReport(
        software=f"elastic-dit {__version__}",
        cluster=cluster,
        requests=reports,
        totals=totals(reports, virtual_gpus, wall_s),
    )


def write_pictures(made: Sequence[Made], report: DemoReport, folder: Path) -> None:
    """Draw ``sheet.png`` and ``timeline.png``.

    Raises
    ------
    SaveError
        Where they cannot be written.
    """
    tiles = [
        tile(one.number, one.ended.result, one.judged)
        for one in made
        if one.ended.result is not None
    ]
    if tiles:
        title = f"{len(tiles)} results, {report.totals.right} show what was asked for"
        write_atomically(folder / "sheet.png", draw_sheet(tiles, title))
    bars = spans(report.requests)
    seen = {gpu for bar in bars for gpu in bar.gpus}
    gpus = sorted(seen | set(range(report.cluster.virtual_gpus)))
    title = f"{len(report.requests)} requests on {report.cluster.virtual_gpus} virtual GPUs"
    write_atomically(folder / "timeline.png", draw_timeline(bars, gpus, title))
