"""Live bars of running requests, drawn by rich; plain lines where there is no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase, Progress

__all__ = ["PHASE_STYLES", "Board", "Row", "draw_rows", "phase_counts"]

PHASE_STYLES = {
    Phase.QUEUED: "dim",
    Phase.ENCODING: "cyan",
    Phase.ENCODED: "dim",
    Phase.DENOISING: "blue",
    Phase.DENOISED: "dim",
    Phase.DECODING: "yellow",
    Phase.COMPLETED: "green",
    Phase.FAILED: "red",
    Phase.CANCELLED: "magenta",
}
"""Rich style of each phase."""

_REFRESH_HZ = 8
_BAR_WIDTH = 20
_PROMPT_WIDTH = 46
_LINES_KEPT_FREE = 6
"""Of the terminal's height, for the summary line and what was printed before."""


@dataclass(frozen=True)
class Row:
    """One request on the board.

    Parameters
    ----------
    number : int
        Counts from 1.
    request : GenerationRequest
        What was asked for.
    progress : Progress
        Where it stands.
    note : str
        The end of the story: time, verdict, error.
    """

    number: int
    request: GenerationRequest
    progress: Progress
    note: str = ""


def phase_counts(rows: Iterable[Row]) -> str:
    """How many requests are in which phase, in the order of a request's life.

    >>> request = GenerationRequest.parse(
    ...     request_id="r1", model="shapes", prompt="a red circle", width=64, height=48,
    ...     num_frames=9, fps=8, num_inference_steps=12, guidance_scale=4.0, seed=7)
    >>> at = [Row(n, request, Progress(request_id="r1", phase=p))
    ...       for n, p in enumerate((Phase.QUEUED, Phase.DENOISING, Phase.QUEUED))]
    >>> phase_counts(at)
    '2 queued, 1 denoising'
    """
    counts = Counter(row.progress.phase for row in rows)
    return ", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase])


def draw_rows(rows: Sequence[Row], limit: int) -> RenderableType:
    """A table of requests with bars, and a line of counts.

    Parameters
    ----------
    rows : sequence of Row
        All requests.
    limit : int
        Most rows to show; running ones first, then waiting, then the last that ended.

    Returns
    -------
    rich renderable
    """
    table = Table.grid(padding=(0, 1))
    for justify in ("right", "left", "right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for row in _chosen(rows, limit):
        table.add_row(*_cells(row))
    return Group(table, Text(phase_counts(rows), style="bold"))


def _chosen(rows: Sequence[Row], limit: int) -> list[Row]:
    def urgency(row: Row) -> tuple[int, int]:
        phase = row.progress.phase
        if phase.is_terminal:
            return 2, -row.number
        return (1 if phase.is_waiting else 0), row.number

    chosen = sorted(rows, key=urgency)[: max(1, limit)]
    return sorted(chosen, key=lambda row: row.number)


def _cells(row: Row) -> tuple[RenderableType, ...]:
    request, progress = row.request, row.progress
    style = PHASE_STYLES[progress.phase]
    prompt = Text(request.prompt, overflow="ellipsis", no_wrap=True)
    prompt.truncate(_PROMPT_WIDTH, overflow="ellipsis")
    extent = f"{request.width}x{request.height}·{request.num_frames}"
    bar = ProgressBar(
        total=1.0, completed=progress.fraction, width=_BAR_WIDTH, complete_style=style,
        finished_style=style,
    )  # fmt: skip
    number = Text(f"{row.number}", style="dim")
    return number, prompt, Text(extent, style="dim"), bar, Text(progress.phase, style), _note(row)


def _note(row: Row) -> Text:
    progress = row.progress
    if row.note or progress.phase.is_terminal:
        return Text(row.note)
    parts = []
    if progress.phase is Phase.DENOISING and progress.total_steps:
        parts.append(f"{progress.step}/{progress.total_steps}")
    if progress.queue_position:
        parts.append(f"{progress.queue_position} ahead")
    if progress.eta_s is not None:
        parts.append(f"{progress.eta_s:.0f} s left")
    if progress.attempt > 1:
        parts.append(f"attempt {progress.attempt}")
    return Text(", ".join(parts), style="dim")


class Board:
    """Rows on a terminal, redrawn in place; elsewhere one line per request that ends.

    Parameters
    ----------
    console : rich.console.Console
        Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[int, Row] = {}
        self._ended: set[int] = set()
        self._live = Live(
            console=console, refresh_per_second=_REFRESH_HZ, get_renderable=self._draw,
            transient=False,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Board: {phase_counts(self._rows.values())}>"

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def add(self, row: Row) -> None:
        """Show one more request."""
        self._rows[row.number] = row

    def update(self, number: int, progress: Progress) -> None:
        """Say where a request stands; what has ended stays ended."""
        if number not in self._ended:
            self._rows[number] = replace(self._rows[number], progress=progress)

    def end(self, number: int, phase: Phase, note: str) -> None:
        """Say how a request ended."""
        self._ended.add(number)
        row = self._rows[number]
        progress = replace(row.progress, phase=phase)
        self._rows[number] = row = replace(row, progress=progress, note=note)
        if not self._console.is_terminal:
            self._console.print(
                f"{len(self._ended)}/{len(self._rows)} {phase}: {row.request.prompt} ({note})",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip

    def _draw(self) -> RenderableType:
        rows = list(self._rows.values())
        return draw_rows(rows, self._console.height - _LINES_KEPT_FREE)
