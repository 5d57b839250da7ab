"""Drill, and tell fault by fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.config import Config
from elastic_dit.errors import ElasticDitError

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.drill.schema import DrillReport, FaultReport

__all__ = ["run_drill"]

_COLUMNS = {
    "injected": "hits",
    "accepted": "in",
    "completed": "done",
    "failed": "failed",
    "cancelled": "stopped",
    "lost": "lost",
    "duplicated": "twice",
    "differing": "other",
    "steps_repeated": "steps",
}
"""Heads short enough for 80 characters in all."""


def run_drill(options: Mapping[str, Any]) -> None:
    """Do it all.

    Parameters
    ----------
    options : mapping of str to Any
        Of the command, by name.

    Raises
    ------
    ElasticDitError
        Where something was lost, made twice or made differently, or the cluster does not start.
    """
    check_json_path(options["json_path"])
    console = human_console(options["json_path"])
    config = Config.load(options["config_path"]) if options["config_path"] else None
    names = ("virtual_gpus", "requests", "faults", "steps", "seed", "fake")
    with console.status("Starting the cluster") as status:
        from elastic_dit.drill.run import DrillOptions, drill

        def tell(report: FaultReport) -> None:
            console.print(_line(report), soft_wrap=True)
            status.update("The next fault")

        wanted = DrillOptions(
            **{name: options[name] for name in names}, config=config, limit_s=options["timeout"]
        )
        report = drill(wanted, tell)
    _show(console, report)
    write_json(options["json_path"], report.model_dump_json(indent=2))
    if not report.ok:
        totals = report.totals
        raise ElasticDitError(
            f"{totals.lost} requests lost, {totals.duplicated} made twice, "
            f"{totals.differing} made differently"
        )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _line(report: FaultReport) -> str:
    recovered = report.seconds_to_recover
    after = "" if recovered is None else f", on again after {recovered:.2f} s"
    return (
        f"{report.fault}: {report.completed} of {report.accepted} done in {report.seconds:.1f} s"
        f"{after}"
    )


def _show(console: Console, report: DrillReport) -> None:
    from rich.table import Table

    table = Table("fault", box=None, padding=(0, 1, 0, 0))
    for head in (*_COLUMNS.values(), "seen", "back, s"):
        table.add_column(head, justify="right")
    for fault in report.faults:
        times = map(_seconds, (fault.seconds_to_notice, fault.seconds_to_recover))
        table.add_row(fault.fault, *(str(getattr(fault, name)) for name in _COLUMNS), *times)
    console.print(table)
    for fault in report.faults:
        for reason in fault.reasons:
            console.print(f"{fault.fault}: {reason}", soft_wrap=True, markup=False)
