"""What loading leaves alone: a user's terminal, and the system's semaphores."""

from __future__ import annotations

import multiprocessing.synchronize

import pytest
from tqdm import tqdm
from tqdm.std import TqdmDefaultWriteLock

from elastic_dit.engine.loading import quiet_libraries


def test_bars_make_no_semaphore_that_outlives_a_killed_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a bar made a semaphore")

    monkeypatch.delattr(TqdmDefaultWriteLock, "mp_lock", raising=False)
    monkeypatch.delattr(tqdm, "_lock", raising=False)
    monkeypatch.setattr(multiprocessing.synchronize.SemLock, "__init__", refuse)
    quiet_libraries()
    assert list(tqdm([1, 2], disable=True)) == [1, 2]
