"""Each undocumented call of the Dask scheduler that request futures rest on."""

from __future__ import annotations

from concurrent.futures import CancelledError

import pytest
from distributed import Client, Future
from distributed.utils_test import gen_cluster

from elastic_dit.cluster.plane import futures
from elastic_dit.errors import GenerationFailed
from tests.cluster.conditions import eventually

pytestmark = pytest.mark.cluster


def in_cluster(function):
    """One scheduler that checks its state, two workers, one client."""
    return gen_cluster(client=True, config={"distributed.scheduler.validate": True})(function)


def put(worker, key, value):
    worker.update_data({key: value})


@in_cluster
async def test_a_delivered_value_is_the_futures_result(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    assert future.status == "pending"
    put(a, "r1", "frames")
    assert futures.deliver(s, "r1", a.address, 6)
    assert await future == "frames"
    assert s.tasks["r1"].nbytes == 6


@in_cluster
async def test_a_value_is_freed_with_its_last_future(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    put(a, "r1", "frames")
    futures.deliver(s, "r1", a.address, 6)
    await future
    assert "r1" in s.tasks
    assert "r1" in a.data
    future.release()
    await eventually(lambda: "r1" not in s.tasks and "r1" not in a.data)


@in_cluster
async def test_a_failure_reaches_present_and_later_clients(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    futures.fail(s, "r1", GenerationFailed("r1", "dit", "RuntimeError", "boom"))
    with pytest.raises(GenerationFailed, match="r1 failed in its dit stage: RuntimeError: boom"):
        await future
    async with Client(s.address, asynchronous=True) as other:
        late = Future("r1", other)
        futures.expect(s, "r1", other.id)
        with pytest.raises(GenerationFailed):
            await late
        late.release()
        future.release()
        await eventually(lambda: "r1" not in s.tasks)


@in_cluster
async def test_withdrawing_cancels_at_every_client(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    futures.withdraw(s, "r1", "because")
    with pytest.raises(CancelledError, match="because"):
        await future
    assert "r1" not in s.tasks


@in_cluster
async def test_withdrawing_spares_what_has_ended(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    put(a, "r1", "frames")
    futures.deliver(s, "r1", a.address, 6)
    futures.withdraw(s, "r1", "too late")
    assert await future == "frames"


@in_cluster
async def test_revoking_takes_also_what_has_ended_and_frees_it(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    put(a, "r1", "frames")
    futures.deliver(s, "r1", a.address, 6)
    assert await future == "frames"
    futures.revoke(s, "r1", "deleted")
    futures.revoke(s, "never heard of", "deleted")
    await eventually(future.cancelled)
    assert "r1" not in s.tasks
    await eventually(lambda: "r1" not in a.data)


@in_cluster
async def test_two_clients_share_a_key_until_both_let_go(c, s, a, b):
    async with Client(s.address, asynchronous=True) as other:
        for client in (c, other):
            futures.expect(s, "r1", client.id)
        assert set(futures.wanted_by(s, "r1")) == {c.id, other.id}
        futures.let_go(s, "r1", c.id)
        assert futures.is_expected(s, "r1")
        futures.let_go(s, "r1", other.id)
        assert not futures.is_expected(s, "r1")


@in_cluster
async def test_nothing_is_delivered_to_nobody_or_from_nowhere(c, s, a, b):
    assert not futures.deliver(s, "r1", a.address, 6)
    futures.expect(s, "r1", c.id)
    assert not futures.deliver(s, "r1", "tcp://127.0.0.1:1", 6)
    assert s.tasks["r1"].state == "released"


@in_cluster
async def test_an_unwanted_value_is_freed_on_its_worker(c, s, a, b):
    put(a, "r1", "frames")
    assert "r1" in a.data
    futures.discard(s, "r1", a.address)
    await eventually(lambda: "r1" not in a.data)


@in_cluster
async def test_a_lost_result_can_be_made_again(c, s, a, b):
    future = Future("r1", c)
    futures.expect(s, "r1", c.id)
    put(a, "r1", "frames")
    futures.deliver(s, "r1", a.address, 6)
    await eventually(future.done)
    await a.close()
    await eventually(lambda: "r1" not in s.tasks)
    assert futures.revive(s, "r1", [c.id, "a client that left"]) == (c.id,)
    await eventually(lambda: future.status == "pending")
    put(b, "r1", "the same frames")
    assert futures.deliver(s, "r1", b.address, 6)
    assert await future == "the same frames"


@in_cluster
async def test_names_and_topics_leave_nothing_in_the_scheduler(c, s, a, b):
    for key in ("r1", "r2"):
        futures.expect(s, key, c.id)
    assert {"r1", "r2"} <= set(s.task_prefixes)
    futures.withdraw(s, "r1", "test")
    for key in ("r1", "r2", "never heard of"):
        futures.forget_name(s, key)
    assert "r1" not in s.task_prefixes
    assert "r2" in s.task_prefixes
    s.subscribe_topic("topic", c.id)
    s.log_event("topic", "something")
    futures.forget_topic(s, "topic", c.id)
    assert "topic" not in s._broker._topics
