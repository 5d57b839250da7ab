"""The scheduler actor: exactly one, replaced when its worker goes, never needed by what runs."""

from __future__ import annotations

import asyncio

import distributed
import pytest
from distributed import Worker
from distributed.utils_test import gen_test

from elastic_dit.actors.scheduler_actor import SCHEDULER_ACTOR, SchedulerActor
from elastic_dit.cluster.launch.control_worker import ControlWorkerPlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.state import Phase, PlacementPlan
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, serving

pytestmark = pytest.mark.cluster

CONFIG = Config.parse({**QUICK.model_dump(), "placement": {"interval_s": 1.0}})
"""A lease long enough not to be lost because the machine is busy."""


def control_worker(cluster, name):
    return Worker(
        cluster.scheduler.address,
        name=name,
        nthreads=1,
        host="127.0.0.1",
        resources={"CONTROL": 1},
        plugins=(ControlWorkerPlugin(),),
    )


def actor_on(worker):
    """The scheduler actor of a worker, None if it has none."""
    actors = [a for a in worker.state.actors.values() if isinstance(a, SchedulerActor)]
    assert len(actors) < 2
    return actors[0] if actors else None


def has_looked(worker):
    actor = actor_on(worker)
    return actor is not None and actor._looks > 0


@gen_test()
async def test_one_of_the_control_workers_hosts_the_actor_and_it_plans():
    async with serving(0, config=CONFIG) as cluster, control_worker(cluster, "c-0") as first:
        await eventually(lambda: has_looked(first))
        async with control_worker(cluster, "c-1") as second:
            controller = cluster.control.reactor.controller
            for epoch in (1, 2):
                await cluster.add_engine()
                await eventually(lambda epoch=epoch: controller.plan.epoch == epoch)
                assert actor_on(first)._last_epoch == epoch
            looks = actor_on(first)._looks
            await eventually(lambda: actor_on(first)._looks > looks + 1)
            assert actor_on(second) is None


@gen_test()
async def test_another_takes_over_when_the_host_dies_and_requests_go_on():
    engine = FakeEngine(seconds=FakeSeconds(step=0.05))
    async with (
        serving(1, config=CONFIG, make=lambda: engine) as cluster,
        connect(cluster) as client,
        control_worker(cluster, "c-0") as host,
    ):
        await eventually(lambda: has_looked(host))
        async with control_worker(cluster, "c-1") as heir:
            future = await client.submit("a circle", num_inference_steps=20)
            await eventually(lambda: future.progress().phase is Phase.DENOISING)
            await host.close()
            await eventually(lambda: has_looked(heir))
            await future
            assert future.progress().attempt == 1


@gen_test()
async def test_any_client_can_call_the_published_actor():
    async with (
        serving(1, config=CONFIG) as cluster,
        control_worker(cluster, "c-0") as worker,
        distributed.Client(cluster.scheduler.address, asynchronous=True) as dask,
    ):
        await eventually(lambda: has_looked(worker))
        actor = await (await dask.get_dataset(SCHEDULER_ACTOR))
        status = await asyncio.wait_for(actor.look(), 10)
        assert status["worker"] == worker.address
        assert status["looks"] >= 2


@gen_test()
async def test_the_host_can_retire():
    async with (
        serving(1, config=CONFIG) as cluster,
        connect(cluster) as client,
        control_worker(cluster, "c-0") as first,
    ):
        await eventually(lambda: has_looked(first))
        async with control_worker(cluster, "c-1") as second:
            retired = await client.dask.retire_workers([first.address])
            assert list(retired) == [first.address]
            await eventually(lambda: has_looked(second))


@gen_test()
async def test_an_actor_that_was_released_is_made_again():
    async with (
        serving(1, config=CONFIG) as cluster,
        control_worker(cluster, "c-0") as worker,
        distributed.Client(cluster.scheduler.address, asynchronous=True) as dask,
    ):
        await eventually(lambda: has_looked(worker))
        actor = actor_on(worker)
        await dask.unpublish_dataset(SCHEDULER_ACTOR)
        worker.plugins[ControlWorkerPlugin.name]._release()
        await eventually(lambda: actor_on(worker) not in (None, actor))


@gen_test()
async def test_a_control_worker_waits_for_a_control_plane():
    async with distributed.Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        plugin = ControlWorkerPlugin()
        async with Worker(scheduler.address, host="127.0.0.1", plugins=(plugin,)) as worker:
            assert await plugin._turn() > 0
            assert actor_on(worker) is None


@gen_test()
async def test_an_old_plan_is_not_accepted():
    async with serving(1, config=CONFIG) as cluster, connect(cluster) as client:
        scheduler = client.dask.scheduler
        await eventually(lambda: cluster.control.reactor.controller.plan.epoch == 1)
        old = PlacementPlan(epoch=1, reason="late").to_wire()
        new = PlacementPlan(epoch=2, reason="in time").to_wire()
        assert (await scheduler.elastic_dit_publish_plan(plan=old))["accepted"] is False
        assert (await scheduler.elastic_dit_publish_plan(plan=new))["accepted"] is True
        assert cluster.control.reactor.controller.plan.reason == "in time"
