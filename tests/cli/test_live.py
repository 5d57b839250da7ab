from __future__ import annotations

import io

import pytest
from rich.console import Console

from elastic_dit.cli.live import PHASE_STYLES, Board, Row, draw_rows
from elastic_dit.state import Phase, Progress
from tests.cli.requests import request


def row(number: int, phase: Phase, note: str = "", **progress: object) -> Row:
    at = Progress(request_id=f"r{number}", phase=phase, **progress)  # type: ignore[arg-type]
    return Row(number, request(number), at, note)


def drawn(rows: list[Row], limit: int = 50) -> list[str]:
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    console.print(draw_rows(rows, limit))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_every_phase_has_a_style() -> None:
    assert set(PHASE_STYLES) == set(Phase)


def test_row_tells_what_matters_in_its_phase() -> None:
    lines = drawn(
        [
            row(1, Phase.DENOISING, step=3, total_steps=12, eta_s=2.4),
            row(2, Phase.QUEUED, queue_position=4),
            row(3, Phase.DECODING, attempt=2),
            row(4, Phase.COMPLETED, note="1.2 s, right"),
        ]
    )
    for line, facts in zip(
        lines,
        (
            ("a red circle", "64x64·9", "denoising", "3/12", "2 s left"),
            ("queued", "4 ahead"),
            ("decoding", "attempt 2"),
            ("completed", "1.2 s, right"),
        ),
        strict=False,
    ):
        assert all(fact in line for fact in facts), line
    assert lines[-1].strip() == "1 queued, 1 denoising, 1 decoding, 1 completed"


def test_running_requests_come_first_where_room_is_short() -> None:
    rows = [row(1, Phase.COMPLETED), row(2, Phase.QUEUED), row(3, Phase.DECODING)]
    lines = drawn(rows, limit=2)
    assert [line.split()[0] for line in lines[:-1]] == ["2", "3"]
    assert "1 completed" in lines[-1]


def test_prompts_are_not_markup() -> None:
    queued = Progress(request_id="r1", phase=Phase.QUEUED)
    shown = Row(1, request(prompt="[red]x[/nothing] " * 20), queued)
    assert "[red]x[/nothing]" in drawn([shown])[0]


def test_without_a_terminal_each_end_is_a_line() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    with Board(console) as board:
        for number in (1, 2):
            board.add(row(number, Phase.QUEUED))
        # A report that the request is over may come before its result.
        board.update(1, Progress(request_id="r1", phase=Phase.COMPLETED))
        board.update(2, Progress(request_id="r2", phase=Phase.COMPLETED))
        board.end(2, Phase.COMPLETED, "0.5 s")
        board.update(2, Progress(request_id="r2", phase=Phase.QUEUED))
        board.end(1, Phase.FAILED, "boom")
        assert repr(board) == "<Board: 1 completed, 1 failed>"
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        f"1/2 completed: {request(2).prompt} (0.5 s)",
        f"2/2 failed: {request(1).prompt} (boom)",
    ]


@pytest.mark.parametrize("height", [1, 10, 60])
def test_board_fits_a_terminal(height: int) -> None:
    console = Console(file=io.StringIO(), width=100, height=height, force_terminal=True)
    with Board(console) as board:
        for number in range(1, 30):
            board.add(row(number, Phase.QUEUED))
    assert "29 queued" in console.file.getvalue()  # type: ignore[attr-defined]
