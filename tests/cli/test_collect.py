from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from elastic_dit.cli.collect import as_ended
from elastic_dit.cli.live import Board
from elastic_dit.errors import ClusterError, GenerationCancelled, GenerationFailed
from elastic_dit.judging import evaluation_scenes, render
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.results import Image, Video, make_result
from elastic_dit.state import Phase, Progress, StageRecord
from tests.cli.requests import request

RECORD = StageRecord(stage=Stage.DIT, gpus=(1,), started_at=0.0, seconds=0.5, attempt=1)


class FakeFuture:
    """Of a `GenerationFuture` what `as_ended` uses; over once `end` was called."""

    def __init__(self, number: int, outcome: Video | Image | Exception) -> None:
        self.request: GenerationRequest = request(number)
        self.records = (RECORD,)
        self.outcome = outcome
        self.callbacks: list[Callable[[Any], None]] = []
        self.on_progress: Callable[[], None] = lambda: None

    def progress(self) -> Progress:
        self.on_progress()
        return Progress(request_id=self.request.request_id, phase=Phase.DENOISING)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)
        self.callbacks.clear()

    def result(self, timeout: float) -> Video | Image:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def result(number: int) -> Video | Image:
    return make_result(render(evaluation_scenes(number)[-1], 9, 64), request(number), [RECORD])


def board() -> Board:
    return Board(Console(file=io.StringIO()))


def collect(futures: list[FakeFuture], limit_s: float = 10.0):
    return as_ended(futures, [0.0] * len(futures), board(), limit_s)  # type: ignore[arg-type]


def test_yields_in_the_order_of_ends_whatever_they_are() -> None:
    failure = GenerationFailed("r2", "dit", "ValueError", "no")
    futures = [
        FakeFuture(1, result(1)),
        FakeFuture(2, failure),
        FakeFuture(3, GenerationCancelled("r3")),
    ]
    ends = collect(futures)
    # Callbacks are there once the iteration has begun, so the first end comes from within it.
    futures[0].on_progress = futures[1].end
    number, ended = next(ends)
    assert (number, ended.status, ended.error) == (2, "failed", str(failure))
    assert ended.records == (RECORD,)
    futures[2].end()
    number, ended = next(ends)
    assert (number, ended.status) == (3, "cancelled")
    futures[0].on_progress = lambda: None
    futures[0].end()
    number, ended = next(ends)
    assert (number, ended.status, ended.result) == (1, "completed", futures[0].outcome)
    assert ended.latency_s > 0
    assert list(ends) == []


def test_latency_ends_when_the_result_is_there_however_long_the_caller_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(100))
    fake = SimpleNamespace(perf_counter=lambda: float(next(clock)))
    monkeypatch.setattr("elastic_dit.cli.collect.time", fake)
    futures = [FakeFuture(1, result(1)), FakeFuture(2, result(2))]
    ends = as_ended(futures, [-3.0, -1.0], board(), 1e6)  # type: ignore[arg-type]

    def both_end() -> None:
        for future in futures:
            future.end()

    futures[0].on_progress = both_end
    _, first = next(ends)
    for _ in range(20):
        next(clock)  # seconds in which the caller looks at the first
    _, second = next(ends)
    assert (first.submitted_s, second.submitted_s) == (0.0, 2.0)
    assert second.latency_s == first.latency_s - 1.0


def test_wait_is_bounded() -> None:
    with pytest.raises(ClusterError, match=r"1 of 1 requests did not end within 0\.05 s"):
        next(collect([FakeFuture(1, result(1))], limit_s=0.05))


def test_a_result_that_does_not_come_is_told_as_such() -> None:
    future = FakeFuture(1, TimeoutError())
    future.on_progress = future.end
    with pytest.raises(ClusterError, match=r"the result of r1 did not come in \d+ s"):
        next(collect([future]))


def test_unknown_errors_are_not_swallowed() -> None:
    future = FakeFuture(1, RuntimeError("bug"))
    future.on_progress = future.end
    with pytest.raises(RuntimeError, match="bug"):
        next(collect([future]))
