"""The demo's last words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from elastic_dit.report.schema import DemoReport

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_summary"]


def print_summary(console: Console, report: DemoReport, folder: Path) -> None:
    """Print what was made, how much of it is right, and where it lies.

    Parameters
    ----------
    console : rich.console.Console
        Where to.
    report : DemoReport
        What happened.
    folder : pathlib.Path
        The output.
    """
    sums = report.totals
    compared = sums.plain_right is not None
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("")
    table.add_column("elastic-dit", justify="right")
    if compared:
        table.add_column("plain pipeline", justify="right")
    right = [f"{sums.right} of {sums.judged}"]
    wall = [f"{sums.wall_seconds:.1f} s"]
    if compared:
        right.append(f"{sums.plain_right} of {sums.judged}")
        wall.append(f"{sums.plain_wall_seconds:.1f} s")
    table.add_row("show what was asked for", *right)
    table.add_row("wall time", *wall)
    table.add_row("processes", f"{report.cluster.virtual_gpus}", *(["1"] if compared else []))
    console.print()
    console.print(table)
    if compared:
        same = f"{sums.identical} of {sums.completed}"
        console.print(f"\nEqual to the plain pipeline in every pixel: {same}.")
    places = ", ".join(("clips/", "sheet.png", "timeline.png", "report.json"))
    console.print(f"In {folder}: {places}.", soft_wrap=True)
