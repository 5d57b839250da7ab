"""Many pieces of work that know nothing of each other, over the cores of this machine."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["run_all"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_BATCHES_PER_PROCESS = 60
"""So many that the processes end together, so few that handing them over costs nothing."""
_GC_THRESHOLD = 200_000
"""Objects between two collections in a worker process: a run keeps what it makes till its end."""


def run_all(
    run: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> list[_Result]:
    """Run all, in parallel; what comes out does not depend on how many processes there are.

    Parameters
    ----------
    run : callable
        A function of a module, without side effects.
    items : sequence
        Plain data, each an argument of `run`.
    processes : int, optional
        By default one for each core; 1 stays in this process.
    done : callable
        Told how many runs have ended since it was last told.

    Returns
    -------
    list
        In the order of `items`.
    """
    processes = min(processes or len(os.sched_getaffinity(0)), len(items))
    if processes <= 1:
        return list(_one_by_one(run, items, done))
    # Fresh interpreters: a fork would copy whatever threads and locks the caller has.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_prepare_process)
    found: dict[int, _Result] = {}
    try:
        size = max(1, len(items) // (processes * _BATCHES_PER_PROCESS))
        futures = {
            pool.submit(_batch, run, items[start : start + size]): start
            for start in range(0, len(items), size)
        }
        for future in as_completed(futures):
            batch = future.result()
            found.update(enumerate(batch, start=futures[future]))
            done(len(batch))
    finally:
        pool.shutdown(cancel_futures=True)
    return [found[index] for index in range(len(items))]


def _one_by_one(
    run: Callable[[_Item], _Result], items: Sequence[_Item], done: Callable[[int], None]
) -> Iterator[_Result]:
    for item in items:
        yield run(item)
        done(1)


def _prepare_process() -> None:
    """In a worker process: Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(_GC_THRESHOLD)


def _batch(run: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    return [run(item) for item in items]
