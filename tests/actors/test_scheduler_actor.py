"""The scheduler actor: exactly one, replaced when its worker goes, never needed by what runs."""

from __future__ import annotations

import asyncio

import distributed
import pytest
from distributed import Worker
from distributed.utils_test import gen_test

from elastic_dit.actors.scheduler_actor import SCHEDULER_ACTOR, SchedulerActor
from elastic_dit.cluster.control_worker import ControlWorkerPlugin
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.state import Phase, PlacementPlan
from tests.cluster.conditions import eventually
from tests.cluster.serving import connect, serving

pytestmark = pytest.mark.cluster


def control_worker(cluster, name):
    return Worker(
        cluster.scheduler.address,
        name=name,
        nthreads=1,
        host="127.0.0.1",
        resources={"CONTROL": 1},
        plugins=(ControlWorkerPlugin(),),
    )


def actors_of(worker):
    return [a for a in worker.state.actors.values() if isinstance(a, SchedulerActor)]


def looks_of(worker):
    return [actor._looks for actor in actors_of(worker)]


@gen_test()
async def test_one_of_the_control_workers_hosts_the_actor_and_it_plans():
    async with serving(0) as cluster:
        first = await control_worker(cluster, "c-0")
        await eventually(lambda: actors_of(first))
        second = await control_worker(cluster, "c-1")
        await cluster.add_engine()
        controller = cluster.control.reactor.controller
        await eventually(lambda: controller.plan.epoch >= 1)
        assert actors_of(first)[0]._plans == 1
        await cluster.add_engine()
        await eventually(lambda: controller.plan.epoch >= 2)
        assert actors_of(first)[0]._plans == 2
        before = looks_of(first)[0]
        await eventually(lambda: looks_of(first)[0] > before + 1)
        assert not actors_of(second)
        for worker in (first, second):
            await worker.close()


@gen_test()
async def test_another_takes_over_when_the_host_dies_and_requests_go_on():
    engine = FakeEngine(seconds=FakeSeconds(step=0.05))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        first, second = [await control_worker(cluster, f"c-{i}") for i in range(2)]
        await eventually(lambda: actors_of(first) or actors_of(second))
        host, heir = (first, second) if actors_of(first) else (second, first)
        future = await client.submit("a circle", num_inference_steps=20)
        await eventually(lambda: future.progress().phase is Phase.DENOISING)
        await host.close()
        await eventually(lambda: looks_of(heir) and looks_of(heir)[0] > 0)
        await future
        assert future.progress().attempt == 1
        await heir.close()


@gen_test()
async def test_any_client_can_call_the_published_actor():
    async with serving(1) as cluster:
        worker = await control_worker(cluster, "c-0")
        await eventually(lambda: actors_of(worker))
        async with distributed.Client(cluster.scheduler.address, asynchronous=True) as dask:
            future = await dask.get_dataset(SCHEDULER_ACTOR)
            actor = await future
            status = await asyncio.wait_for(actor.look(), 10)
            assert status["worker"] == worker.address
            assert status["looks"] >= 1
        await worker.close()


@gen_test()
async def test_the_host_can_retire():
    async with serving(1) as cluster, connect(cluster) as client:
        first = await control_worker(cluster, "c-0")
        await eventually(lambda: actors_of(first))
        second = await control_worker(cluster, "c-1")
        retired = await client.dask.retire_workers([first.address])
        assert list(retired) == [first.address]
        await eventually(lambda: actors_of(second))
        for worker in (first, second):
            await worker.close()


@gen_test()
async def test_an_actor_that_was_released_is_made_again():
    async with serving(1) as cluster:
        worker = await control_worker(cluster, "c-0")
        await eventually(lambda: actors_of(worker))
        [actor] = actors_of(worker)
        async with distributed.Client(cluster.scheduler.address, asynchronous=True) as dask:
            await dask.unpublish_dataset(SCHEDULER_ACTOR)
        plugin = worker.plugins[ControlWorkerPlugin.name]
        plugin._release()
        await eventually(lambda: actors_of(worker) and actors_of(worker) != [actor])
        await worker.close()


@gen_test()
async def test_an_old_plan_is_not_accepted():
    async with serving(1) as cluster, connect(cluster) as client:
        scheduler = client.dask.scheduler
        await eventually(lambda: cluster.control.reactor.controller.plan.epoch == 1)
        old = PlacementPlan(epoch=1, reason="late").to_wire()
        new = PlacementPlan(epoch=2, reason="in time").to_wire()
        assert (await scheduler.elastic_dit_publish_plan(plan=old))["accepted"] is False
        assert (await scheduler.elastic_dit_publish_plan(plan=new))["accepted"] is True
        assert cluster.control.reactor.controller.plan.reason == "in time"
