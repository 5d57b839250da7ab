"""Wait for many futures at once, and show how far each is."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from elastic_dit.cli.live import Board, Row
from elastic_dit.errors import ClusterError, GenerationCancelled, GenerationFailed
from elastic_dit.report.build import Ended

if TYPE_CHECKING:
    from elastic_dit.future import GenerationFuture

__all__ = ["as_ended"]

_LOOK_S = 0.1
"""Seconds between two looks at the progress of what runs."""


def as_ended(
    futures: Sequence[GenerationFuture], started_s: Sequence[float], board: Board, limit_s: float
) -> Iterator[tuple[int, Ended]]:
    """Yield requests as they end, and keep the board's bars moving meanwhile.

    Parameters
    ----------
    futures : sequence of GenerationFuture
        All from one synchronous client.
    started_s : sequence of float
        When each was submitted, `time.perf_counter` seconds.
    board : Board
        Shows them, numbered from 1 in the order of `futures`.
    limit_s : float
        Longest wait for all, seconds.

    Yields
    ------
    tuple of int and Ended
        Its number, and how it ended.

    Raises
    ------
    ClusterError
        Where some have not ended within the limit, or a result does not come.
    """
    done: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
    for number, future in enumerate(futures, start=1):
        board.add(Row(number, future.request, future.progress()))
        future.add_done_callback(partial(_put, done, number))
    deadline_s = time.perf_counter() + limit_s
    running = dict(enumerate(futures, start=1))
    while running:
        for number, future in running.items():
            board.update(number, future.progress())
        try:
            number, done_s = done.get(timeout=_LOOK_S)
        except queue.Empty:
            if time.perf_counter() > deadline_s:
                waiting = f"{len(running)} of {len(futures)} requests"
                raise ClusterError(f"{waiting} did not end within {limit_s:g} s") from None
            continue
        ended = _end(running.pop(number), max(1.0, deadline_s - time.perf_counter()))
        submitted_s = started_s[number - 1]
        # What the caller does with one result is no part of the next one's latency.
        latency_s = ended.latency_s + done_s - submitted_s
        yield (
            number,
            replace(ended, latency_s=latency_s, submitted_s=submitted_s - min(started_s)),
        )


def _put(
    done: queue.SimpleQueue[tuple[int, float]],
    number: int,
    future: object,  # noqa: ARG001
) -> None:
    done.put((number, time.perf_counter()))


def _end(future: GenerationFuture, limit_s: float) -> Ended:
    """Fetch the result of a future that is done; its latency is what that takes."""
    asked_s = time.perf_counter()
    status: Literal["completed", "failed", "cancelled"] = "completed"
    result = error = None
    try:
        result = future.result(timeout=limit_s)
    except GenerationFailed as failure:
        status, error = "failed", str(failure)
    except GenerationCancelled as cancelled:
        status, error = "cancelled", str(cancelled)
    except TimeoutError:
        request_id = future.request.request_id
        raise ClusterError(f"the result of {request_id} did not come in {limit_s:.3g} s") from None
    return Ended(
        request=future.request,
        status=status,
        latency_s=time.perf_counter() - asked_s,
        records=result.records if result is not None else future.records,
        result=result,
        error=error,
    )
