"""The status of a cluster as tables, from the plain data of `Client.status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastic_dit.cli.live import PHASE_STYLES
from elastic_dit.state import Phase

__all__ = ["draw_status"]

Facts = Mapping[str, Any]

_REQUESTS_SHOWN = 20
_DECISIONS_SHOWN = 5
_MOVES_SHOWN = 8
_GIB = 2**30


def draw_status(status: Facts) -> RenderableType:
    """Draw plan, machines, GPUs, queues, requests, the latest moves and the latest decisions.

    Parameters
    ----------
    status : mapping
        As `elastic_dit.cluster.plane.status.status_of` documents it.

    Returns
    -------
    rich renderable
    """
    return Group(
        _headline(status),
        _plan(status["plan"], status["planner"]),
        *_machines(status["machines"], status["nodes_wanted"]),
        _gpus(status["gpus"]),
        _queues(status["queues"]),
        _requests(status["requests"], status["now"], len(status["models"]) > 1),
        _decisions("Latest changes of placement", status["moves"][-_MOVES_SHOWN:], status["now"]),
        _decisions("Latest decisions", status["decisions"][-_DECISIONS_SHOWN:], status["now"]),
    )


def _headline(status: Facts) -> Text:
    models = ", ".join(status["models"]) or "no model"
    ended = ", ".join(f"{count} {phase}" for phase, count in status["ended"].items() if count)
    gpus = len(status["gpus"])
    serving = "1 GPU serves" if gpus == 1 else f"{gpus} GPUs serve"
    text = f"{serving} {models}. Ended: {ended or 'none'}."
    return Text(text, style="bold")


def _plan(plan: Facts, planner: str) -> Text:
    by = f"the scheduler actor on {planner}" if planner else "the control plane"
    return Text(f"Plan {plan['epoch']}: {plan['reason']}. Planned by {by}.")


def _machines(machines: Sequence[Facts], wanted: int | None) -> list[Table]:
    """None where there is one that stays: its GPUs say all."""
    if len(machines) < 2 and wanted is None and not any(one["departure"] for one in machines):
        return []
    title = "Machines" if wanted is None else f"Machines ({wanted} wanted)"
    table = _table(title, ("machine", "GPUs", "state"))
    for one in machines:
        gpus = " ".join(map(str, one["gpus"]))
        _add(table, one["machine"], gpus, one["departure"] or "serving")
    return [table]


def _gpus(gpus: Sequence[Facts]) -> Table:
    table = _table("GPUs", ("GPU", "name", "kind", "memory", "stages", "now", "busy"))
    for gpu in gpus:
        stages = [_stage(key) for key in gpu["resident"]]
        stages += [f"{_stage(key)} (loading)" for key in gpu["loading"]]
        stages += [f"{_stage(key)} (failed: {key['cause']})" for key in gpu["failed"]]
        now = f"{gpu['request_id']} {gpu['stage']}" if gpu["request_id"] else "idle"
        memory = f"{gpu['memory_bytes'] / _GIB:.1f} GiB"
        cells = (gpu["gpu"], gpu["name"], gpu["kind"], memory, ", ".join(stages) or "none", now)
        _add(table, *cells, f"{gpu['busy_s']:.1f} s")
    return table


def _queues(queues: Sequence[Facts]) -> Table:
    table = _table("Queues", ("model", "stage", "waiting", "oldest"))
    for queue in queues:
        oldest = f"{queue['oldest_wait_s']:.1f} s" if queue["waiting"] else ""
        _add(table, queue["model"], queue["stage"], queue["waiting"], oldest)
    return table


def _requests(requests: Sequence[Facts], now: float, with_model: bool) -> Table:
    live = [one for one in requests if not Phase(one["phase"]).is_terminal]
    over = [one for one in reversed(requests) if Phase(one["phase"]).is_terminal]
    shown = [*live, *over][:_REQUESTS_SHOWN]
    title = "Requests"
    if len(shown) < len(requests):
        title = f"Requests ({len(shown)} of {len(requests)})"
    columns = ("size", "phase", "step", "GPUs", "ahead", "age", "left")
    # An id cut short names nothing, and with one model its name says nothing: 80 columns do.
    table = _table(title, ("request", "model", *columns) if with_model else ("request", *columns))
    table.padding = (0, 1, 0, 0)
    table.columns[0].no_wrap = True
    for one in shown:
        end = one["finished_at"] if one["finished_at"] is not None else now
        phase = Text(one["phase"], PHASE_STYLES[Phase(one["phase"])])
        _add(
            table, one["request_id"], *([one["model"]] if with_model else []),
            f"{one['width']}x{one['height']}x{one['num_frames']}", phase,
            f"{one['step']}/{one['total_steps']}",
            " ".join(map(str, one["gpus"])), one["queue_position"] or "",
            f"{end - one['accepted_at']:.1f} s",
            "" if one["eta_s"] is None else f"{one['eta_s']:.1f} s",
        )  # fmt: skip
    return table


def _decisions(title: str, decisions: Sequence[Facts], now: float) -> Table:
    table = _table(title, ("ago", "what", "on", "GPUs", "why"))
    for one in decisions:
        gpus = " ".join(map(str, one["gpus"]))
        _add(table, f"{now - one['at']:.1f} s", one["what"], one["subject"], gpus, one["reason"])
    return table


def _stage(key: Facts) -> str:
    return f"{key['model']}/{key['stage']}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column, header_style="dim")
    return table


def _add(table: Table, *cells: object) -> None:
    # As Text: names and reasons may hold brackets, which rich would read as markup.
    table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells))
