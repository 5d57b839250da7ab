"""The control plane in a Dask scheduler: engines that come and go, bad messages, load."""

from __future__ import annotations

import asyncio
import random

import distributed
import numpy as np
import pytest
from distributed import Scheduler
from distributed.utils import recursive_to_dict
from distributed.utils_test import gen_test

from elastic_dit.client import Client
from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.messages import EVENT_OP, HELLO_OP
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin, WorkerChannel
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.errors import ConfigError, GenerationFailed
from elastic_dit.events import StageDone
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, prompts, quick, serving

pytestmark = pytest.mark.cluster

FOREVER = 60.0


def steps_of(seconds):
    return lambda: FakeEngine(seconds=FakeSeconds(step=seconds))


# --------------------------------------------------------------------------------- membership
@gen_test()
async def test_a_request_survives_the_engine_that_runs_it():
    async with serving(2, make=steps_of(0.05)) as cluster, connect(cluster) as client:
        future = await client.submit("a circle", num_inference_steps=10)
        await eventually(lambda: future.progress().step >= 2)
        table = cluster.control.reactor.controller.table
        [gpu] = table.live[future.key].group.gpus
        lost = cluster.control.reactor.directory.address(gpu)
        worker = next(worker for worker in cluster.workers if worker.address == lost)
        await worker.close()
        video = await future
        assert np.array_equal(video.frames, fake_frames(future.request))
        assert future.progress().attempt == 2
        assert video.records[-1].gpus != (gpu,)


async def _running(cluster, future):
    """The worker whose engine is at work on a request."""
    await eventually(lambda: future.progress().step >= 1)
    control = cluster.control.reactor
    [gpu] = control.controller.table.live[future.key].group.gpus
    address = control.directory.address(gpu)
    return next(worker for worker in cluster.workers if worker.address == address)


async def _close(cluster, worker):
    await worker.close(reason="signal-2")


async def _retire(cluster, worker):
    await cluster.scheduler.retire_workers([worker.address])


async def _give_up(cluster, worker):
    WorkerChannel(worker).give_up("an illegal memory access")


async def _break(cluster, worker):
    cluster.scheduler.stream_comms[worker.address].abort()


@pytest.mark.parametrize(
    ("leave", "is_blamed"), [(_close, False), (_retire, False), (_give_up, True), (_break, True)]
)
@gen_test()
async def test_only_an_engine_that_dies_costs_a_try(leave, is_blamed):
    config = quick(max_attempts=1)
    async with (
        serving(2, config=config, make=steps_of(0.05)) as cluster,
        connect(cluster) as client,
    ):
        future = await client.submit("a circle", num_inference_steps=10)
        await leave(cluster, await _running(cluster, future))
        if is_blamed:
            with pytest.raises(GenerationFailed, match="its worker is gone"):
                await future
        else:
            assert np.array_equal((await future).frames, fake_frames(future.request))
            assert future.progress().attempt == 2


@pytest.mark.parametrize(("leave", "is_blamed"), [(_close, False), (_give_up, True)])
@gen_test()
async def test_a_result_that_goes_with_its_worker_is_made_again(leave, is_blamed):
    config = quick(max_attempts=1)
    async with serving(2, config=config) as cluster, connect(cluster) as client:
        future = await client.submit("a circle", seed=7)
        await eventually(future.done)
        [address] = [state.address for state in cluster.scheduler.tasks[future.key].who_has]
        await leave(cluster, next(w for w in cluster.workers if w.address == address))
        if is_blamed:
            await eventually(lambda: future.status == "error")
            with pytest.raises(GenerationFailed, match="the result was lost"):
                await future
        else:
            await eventually(lambda: future.progress().attempt == 2)
            assert np.array_equal((await future).frames, fake_frames(future.request))


@gen_test()
async def test_an_engine_that_joins_later_takes_work():
    async with serving(1, make=steps_of(0.05)) as cluster, connect(cluster) as client:
        futures = await client.map(prompts(4), num_inference_steps=4)
        await cluster.add_engine(steps_of(0.05))
        videos = await client.gather(futures)
        assert {gpu for video in videos for r in video.records for gpu in r.gpus} == {0, 1}


@gen_test()
async def test_a_restarted_worker_keeps_its_number():
    async with serving(2) as cluster:
        first = cluster.control.reactor.directory.at(cluster.workers[1].address)
        await cluster.workers[1].close()
        directory = cluster.control.reactor.directory
        await eventually(lambda: len(directory) == 1)
        await cluster.add_engine(name="w-1")
        await eventually(lambda: len(directory) == 2)
        assert directory.named("w-1").gpu == first.gpu
        assert directory.named("w-1").hello.instance != first.hello.instance


@gen_test()
async def test_an_engine_that_starts_over_on_its_worker_is_lost_and_joins():
    async with serving(1, make=steps_of(FOREVER)) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        await eventually(lambda: future.progress().phase is Phase.DENOISING)
        worker = cluster.workers[0]
        member = cluster.control.reactor.directory.at(worker.address)
        hello = {**member.hello.model_dump(mode="json"), "instance": "another"}
        worker.batched_send({"op": HELLO_OP, "engine": hello})
        await eventually(lambda: future.progress().attempt == 2)


@gen_test()
async def test_workers_with_engines_retire():
    async with serving(2, make=steps_of(0.02)) as cluster, connect(cluster) as client:
        futures = await client.map(prompts(6), num_inference_steps=6)
        await eventually(lambda: futures[0].progress().phase is Phase.DENOISING)
        address = cluster.workers[0].address
        retired = await client.dask.retire_workers([address])
        assert list(retired) == [address]
        for future in futures:
            assert np.array_equal((await future).frames, fake_frames(future.request))


@gen_test()
async def test_commands_to_workers_that_are_leaving_end_in_no_traceback(caplog):
    async with serving(3, make=steps_of(0.01)) as cluster, connect(cluster) as client:
        futures = await client.map(prompts(12), num_inference_steps=8)
        await eventually(lambda: futures[0].progress().phase is Phase.DENOISING)
        for worker in cluster.workers[:2]:
            await worker.close()
        await client.gather(futures)
    assert "KeyError" not in caplog.text  # of a command that no handler awaits


@gen_test()
async def test_no_gpus_at_all_and_requests_still_wait():
    async with serving(1, make=steps_of(0.02)) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        await cluster.workers[0].close()
        await eventually(lambda: future.progress().phase is Phase.QUEUED)
        await cluster.add_engine(steps_of(0.0))
        await future


@gen_test()
async def test_submissions_wait_while_the_only_engine_restarts():
    async with serving(1) as cluster, connect(cluster) as client:
        await cluster.workers[0].close()
        submission = asyncio.ensure_future(client.submit("a circle"))
        await eventually(lambda: cluster.control.reactor.checking)
        await cluster.add_engine(name="w-0")
        assert await (await submission)


@gen_test()
async def test_a_stage_that_cannot_be_loaded_fails_requests_with_its_cause():
    key = StageKey("fake", Stage.DECODER)

    def broken():
        return FakeEngine(load_failures={key: "decoder.safetensors is corrupt"})

    async with serving(1, make=broken) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        with pytest.raises(GenerationFailed, match=r"decoder\.safetensors is corrupt"):
            await future


# ---------------------------------------------------------------------------------- robustness
@gen_test()
async def test_nonsense_from_a_worker_breaks_nothing():
    async with serving(1) as cluster, connect(cluster) as client:
        worker = cluster.workers[0]
        for message in (
            {"op": HELLO_OP, "engine": {"name": "half a hello"}},
            {"op": HELLO_OP, "engine": None},
            {"op": EVENT_OP, "event": {"type": "NoSuchEvent"}},
            {"op": EVENT_OP, "event": {"type": "StepDone", "request_id": "?"}},
            {"op": EVENT_OP, "event": None},
            {
                "op": EVENT_OP,
                "event": {
                    "type": "StepDone",
                    "request_id": "no such request",
                    "attempt": 1,
                    "epoch": 1,
                    "step": 1,
                },
            },
        ):
            worker.batched_send(message)
        assert await (await client.submit("a circle"))
        assert worker.address in cluster.scheduler.workers


@gen_test()
async def test_an_error_inside_fails_the_request_it_is_about_alone():
    async with serving(1) as cluster, connect(cluster) as client:
        controller = cluster.control.reactor.controller
        handle = controller.handle

        def trip(event, now):
            if isinstance(event, StageDone) and event.request_id == "bad":
                raise ZeroDivisionError("a mistake of ours")
            return handle(event, now)

        controller.handle = trip
        bad = await client.submit("a circle", request_id="bad")
        with pytest.raises(GenerationFailed, match="ZeroDivisionError: a mistake of ours"):
            await bad
        controller.handle = handle
        assert "bad" not in controller.table.live
        assert controller.table.get("bad").phase is Phase.CANCELLED


@gen_test()
async def test_an_unwanted_result_is_freed_on_its_worker():
    async with serving(1) as cluster:
        worker = cluster.workers[0]
        worker.update_data({"r1": b"frames"})
        gpu = cluster.control.reactor.directory.at(worker.address).gpu
        output = {"request_id": "r1", "attempt": 1, "stage": "decoder", "gpu": gpu, "nbytes": 6}
        event = {
            "type": "StageDone",
            "request_id": "r1",
            "attempt": 1,
            "epoch": 1,
            "stage": "decoder",
            "output": {**output, "digest": "d", "step": 0},
            "seconds": 0.1,
        }
        worker.batched_send({"op": EVENT_OP, "event": event})
        await eventually(lambda: "r1" not in worker.data)


@gen_test(timeout=60)
async def test_a_hundred_mixed_requests_leave_nothing_behind():
    draw = random.Random(5)
    failures = [
        FakeFailure(stage=draw.choice([*Stage]), request_id=f"r{index}")
        for index in range(0, 96, 9)
    ]

    def engine():
        return FakeEngine(failures=failures, seconds=FakeSeconds(step=0.001))

    async with serving(3, make=engine) as cluster, connect(cluster) as client:
        futures = [
            await client.submit(
                f"prompt {i}",
                request_id=f"r{i}",
                width=draw.choice([32, 48, 64]),
                num_frames=draw.choice([1, 5, 9]),
                num_inference_steps=draw.choice([2, 4, 8]),
            )
            for i in range(100)
        ]
        stopped = [await futures[index].cancel() for index in (98, 97, 44, 4)]
        assert stopped[0]
        ends = await asyncio.gather(
            *(future.exception() for future in futures), return_exceptions=True
        )
        names = [type(end).__name__ for end in ends]
        assert names.count("GenerationFailed") == len(failures)
        assert names.count("GenerationCancelled") == sum(stopped)
        assert names.count("NoneType") == 100 - len(failures) - sum(stopped)
        cluster.control.reactor.controller.check()
        del futures, ends
        await cluster.is_clean()
        await eventually(lambda: not client.dask.futures)
        assert len(cluster.control.reactor.feed) == 0


@gen_test()
async def test_an_idle_timeout_does_not_end_a_cluster_at_work():
    async with serving(1, make=steps_of(0.1)) as cluster, connect(cluster) as client:
        scheduler = cluster.scheduler
        future = await client.submit("a circle", num_inference_steps=10)
        scheduler.idle_timeout = 0.3
        while not future.done():
            scheduler.check_idle()
            await asyncio.sleep(0.01)
        assert scheduler.status == distributed.Status.running
        await future

        def is_closed():
            scheduler.check_idle()
            return scheduler.status != distributed.Status.running

        await eventually(is_closed)


# --------------------------------------------------------------------------------- what it tells
@gen_test()
async def test_status_tells_requests_queues_and_gpus():
    async with serving(1, make=steps_of(FOREVER)) as cluster, connect(cluster) as client:
        futures = await client.map(prompts(2))
        await eventually(lambda: futures[0].progress().phase is Phase.DENOISING)
        status = await client.status()
        assert [r["phase"] for r in status["requests"]] == ["denoising", "queued"]
        [gpu] = status["gpus"]
        assert gpu["request_id"] == futures[0].key
        assert gpu["address"] == cluster.workers[0].address
        assert len(gpu["resident"]) == 3
        waiting = {(q["model"], q["stage"]): q["waiting"] for q in status["queues"]}
        assert waiting["fake", "encoder"] == 1
        assert status["models"] == ("fake",)
        assert status["decisions"]


@gen_test()
async def test_a_cluster_dump_can_hold_the_control_plane():
    async with serving(1) as cluster, connect(cluster) as client:
        await (await client.submit("a circle"))
        assert recursive_to_dict(cluster.control)["ended"]["completed"] == 1


# ----------------------------------------------------------------------------------- bootstrap
@gen_test()
async def test_many_at_once_make_one_control_plane():
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        await asyncio.gather(*(ensure_control(scheduler.address) for _ in range(8)))
        plugin = scheduler.plugins[ControlPlugin.name]
        await ensure_control(scheduler.address)
        assert scheduler.plugins[ControlPlugin.name] is plugin


@gen_test()
async def test_the_first_settings_brought_are_in_force():
    mine = Config.parse({"control": {"tick_s": 0.25}})
    yours = Config.parse({"control": {"tick_s": 0.75}})
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        await ensure_control(scheduler.address)
        reactor = scheduler.plugins[ControlPlugin.name].reactor
        assert reactor.config == Config()
        await ensure_control(scheduler.address, config=mine)
        assert reactor.config == mine
        await ensure_control(scheduler.address, config=yours)
        assert reactor.config == mine


@gen_test()
async def test_a_clients_waits_are_not_the_clusters_settings():
    hurried = Config.parse({"client": {"ready_timeout_s": 0.5}})
    mine = Config.parse({"control": {"tick_s": 0.25}})
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        async with Client(scheduler.address, config=hurried, asynchronous=True):
            await ensure_control(scheduler.address, config=mine)
        assert scheduler.plugins[ControlPlugin.name].reactor.config == mine


@pytest.mark.parametrize("section", ["placement", "control"])
@gen_test()
async def test_settings_that_name_an_unknown_policy_are_refused(section):
    name = {"placement": "policy", "control": "dispatch"}[section]
    wrong = Config.parse({section: {name: "wishful"}})
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        for _ in range(2):
            with pytest.raises(
                ConfigError, match=rf"{section}\.{name} = 'wishful': must be one of"
            ):
                await ensure_control(scheduler.address, config=wrong)
            await ensure_control(scheduler.address)
        assert scheduler.plugins[ControlPlugin.name].reactor.config == Config()


@gen_test()
async def test_a_client_may_come_before_the_settings_do():
    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        submission = asyncio.ensure_future(client.submit("a circle"))
        await eventually(lambda: client.dask.futures)
        await ensure_control(scheduler.address, config=QUICK)
        plugin = EnginePlugin(QUICK, device="cpu", node="n", index=0, make_engine=_make_fake)
        async with distributed.Worker(
            scheduler.address, name="w", host="127.0.0.1", plugins=(plugin,)
        ):
            assert await (await submission)


def _make_fake(config, device):
    return FakeEngine()
