from __future__ import annotations

import asyncio
import threading
import weakref
from functools import partial

import pytest

from elastic_dit.cluster.worker import job_queue
from elastic_dit.cluster.worker.job_queue import JobQueue
from elastic_dit.errors import ClusterError
from tests.cluster.bench import run
from tests.cluster.conditions import eventually


def test_jobs_run_in_order_in_one_thread() -> None:
    async def check() -> None:
        queue = JobQueue("jobs")
        queue.open()
        done: list[int] = []
        threads: set[int] = set()

        def work(number: int) -> int:
            threads.add(threading.get_ident())
            done.append(number)
            return number

        jobs = [
            queue.put(lambda number=number: queue.in_thread(work, number)) for number in range(20)
        ]
        assert await asyncio.gather(*jobs) == done == list(range(20))
        assert len(threads) == 1
        assert threads != {threading.get_ident()}
        assert await queue.close(5.0)

    run(check())


def test_a_failing_job_stops_nothing() -> None:
    def fail() -> None:
        raise ValueError("bad")

    async def check() -> None:
        queue = JobQueue("jobs")
        queue.open()
        bad = queue.put(lambda: queue.in_thread(fail))
        good = queue.put(lambda: queue.in_thread(len, "four"))
        with pytest.raises(ValueError, match="bad"):
            await bad
        assert await good == 4
        assert await queue.close(5.0)

    run(check())


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "QUEUE_LIMIT", 2)

    async def check() -> None:
        queue = JobQueue("jobs")
        waiting = [queue.put(lambda: queue.in_thread(len, "")) for _ in range(2)]
        with pytest.raises(ClusterError, match="2 jobs"):
            queue.put(lambda: queue.in_thread(len, ""))
        assert len(queue) == 2
        assert await queue.close(5.0)
        assert all(job.cancelled() for job in waiting)

    run(check())


def test_close_does_not_wait_longer_than_told() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10.0)

    async def check() -> None:
        queue = JobQueue("jobs")
        queue.open()
        job = queue.put(lambda: queue.in_thread(work))
        assert await asyncio.to_thread(begun.wait, 10.0)
        assert not await queue.close(0.05)
        go_on.set()
        assert job.done()

    run(check())


def test_a_closed_queue_takes_nothing_that_would_wait_for_ever() -> None:
    async def check() -> None:
        queue = JobQueue("jobs")
        queue.open()
        assert await queue.close(5.0)
        with pytest.raises(ClusterError, match="closed"):
            queue.put(lambda: queue.in_thread(len, ""))

    run(check())


def test_nothing_of_a_job_is_kept_while_none_follows() -> None:
    class Tensors:
        """What a job holds."""

    async def check() -> None:
        queue = JobQueue("jobs")
        queue.open()
        tensors = Tensors()
        gone = weakref.ref(tensors)
        assert await queue.put(partial(queue.in_thread, id, tensors)) == id(tensors)
        del tensors
        await eventually(lambda: gone() is None)
        assert await queue.close(5.0)

    run(check())
