"""The client and its futures, against fake engines on a real Dask cluster in this process."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack

import distributed
import numpy as np
import pytest
from distributed.utils_test import gen_test

import elastic_dit
from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.errors import (
    AdmissionRefused,
    ClusterError,
    ConfigError,
    GenerationCancelled,
    GenerationFailed,
    InvalidRequest,
    NotReady,
    RequestConflict,
    SchedulerUnreachable,
    UnknownModel,
)
from elastic_dit.request import Stage
from elastic_dit.results import Image, Video
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, prompts, quick, serving

pytestmark = pytest.mark.cluster

FOREVER = 60.0


# ------------------------------------------------------------------------------------ results
@gen_test()
async def test_a_prompt_becomes_a_video_that_tells_how_it_was_made():
    async with serving() as cluster, connect(cluster) as client:
        future = await client.submit("a red circle", seed=3, num_inference_steps=5)
        video = await future
        assert isinstance(video, Video)
        assert future.request.seed == 3
        assert video.request == future.request
        assert np.array_equal(video.frames, fake_frames(future.request))
        assert [record.stage for record in video.records] == list(Stage)
        assert future.records == video.records
        assert future.progress().phase is Phase.COMPLETED
        assert future.done()
        assert await future.exception() is None


@gen_test()
async def test_one_frame_becomes_an_image():
    async with serving() as cluster, connect(cluster) as client:
        assert isinstance(await (await client.submit("a circle", num_frames=1)), Image)


@gen_test()
async def test_a_seed_is_drawn_and_told():
    async with serving() as cluster, connect(cluster) as client:
        first, second = await client.map(prompts(2))
        assert first.request.seed != second.request.seed
        again = await client.submit(first.request.prompt, seed=first.request.seed)
        assert np.array_equal((await again).frames, (await first).frames)


@gen_test()
async def test_futures_work_with_what_dask_offers():
    async with serving() as cluster, connect(cluster) as client:
        futures = await client.map(prompts(4))
        videos = await client.gather(futures)
        assert [video.request.prompt for video in videos] == list(prompts(4))
        assert all(video.records for video in videos)
        seen = {future.key async for future in distributed.as_completed(futures)}
        assert seen == {future.key for future in futures}
        done, not_done = await distributed.wait(futures)
        assert (len(done), len(not_done)) == (4, 0)
        plain = await client.dask.gather(futures)
        assert np.array_equal(plain[2].frames, videos[2].frames)
        async for _, video in distributed.as_completed(futures, with_results=True):
            assert video.records


@gen_test(clean_kwargs={"threads": False})  # Dask keeps its thread for callbacks
async def test_callbacks_hear_of_every_end():
    engine = FakeEngine(failures=[FakeFailure(stage=Stage.DIT, request_id="bad")])
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        futures = [await client.submit("a circle", request_id=name) for name in ("good", "bad")]
        called = []
        for future in futures:
            future.add_done_callback(called.append)
        await eventually(lambda: set(called) == set(futures))
        assert [future.status for future in futures] == ["finished", "error"]


# ----------------------------------------------------------------------------------- progress
@gen_test()
async def test_progress_goes_forward_through_every_phase():
    engine = FakeEngine(seconds=FakeSeconds(step=0.03))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        future = await client.submit("a circle", num_inference_steps=6)
        seen = [future.progress()]
        while not future.done():
            if future.progress() != seen[-1]:
                seen.append(future.progress())
            await asyncio.sleep(0.002)
        seen.append(future.progress())
        order = [*Phase]
        ranks = [order.index(progress.phase) for progress in seen]
        assert ranks == sorted(ranks)
        steps = [progress.step for progress in seen]
        assert steps == sorted(steps)
        assert len(set(steps)) >= 4
        assert seen[-1].phase is Phase.COMPLETED
        assert all(progress.total_steps == 6 for progress in seen)


@gen_test()
async def test_updates_tell_of_every_change_until_the_end():
    engine = FakeEngine(seconds=FakeSeconds(step=0.03))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        future = await client.submit("a circle", num_inference_steps=4)
        seen = [progress async for progress in future.updates()]
        assert seen[-1].phase is Phase.COMPLETED
        assert len(set(seen)) == len(seen)
        assert len({progress.step for progress in seen}) >= 3
        assert [progress async for progress in future.updates()] == seen[-1:]
        slow = await client.submit("a circle", num_inference_steps=100)
        updates = slow.updates()
        await anext(updates)
        await slow.cancel()
        assert [progress async for progress in updates][-1].phase is Phase.CANCELLED


@gen_test()
async def test_waiting_requests_learn_their_place_in_line():
    slow = FakeEngine(seconds=FakeSeconds(step=FOREVER))
    async with serving(1, make=lambda: slow) as cluster, connect(cluster) as client:
        futures = await client.map(prompts(4))
        places = [0, 0, 1, 2]
        await eventually(lambda: [future.progress().queue_position for future in futures] == places)
        await futures[0].cancel()
        places = [0, 0, 1]
        await eventually(
            lambda: [future.progress().queue_position for future in futures[1:]] == places
        )


# ----------------------------------------------------------------------------------- failures
@pytest.mark.parametrize("stage", list(Stage))
@gen_test()
async def test_a_stage_that_raises_fails_its_request_alone(stage):
    failure = FakeFailure(stage=stage, request_id="bad", error=ValueError("no such colour"))
    engine = FakeEngine(failures=[failure])
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        bad = await client.submit("a circle", request_id="bad")
        good = await client.submit("a circle", request_id="good")
        with pytest.raises(GenerationFailed) as caught:
            await bad
        error = caught.value
        assert (error.request_id, error.stage) == ("bad", str(stage))
        assert (error.error_type, error.message) == ("ValueError", "no such colour")
        assert bad.status == "error"
        assert isinstance(await bad.exception(), GenerationFailed)
        assert bad.progress().phase is Phase.FAILED
        assert isinstance(await good, Video)
        with pytest.raises(GenerationFailed):
            await client.gather([good, bad])
        with pytest.raises(GenerationFailed):
            async for _ in distributed.as_completed([bad], with_results=True):
                pass
        del bad, good, error, caught
        gc.collect()  # as_completed raises in a frame that the error then holds
        await cluster.is_clean()


# ------------------------------------------------------------------------------------- cancel
IN_PHASE = {
    Phase.ENCODING: FakeSeconds(encoder=FOREVER),
    Phase.DENOISING: FakeSeconds(step=FOREVER),
    Phase.DECODING: FakeSeconds(decoder=FOREVER),
}


@pytest.mark.parametrize("phase", list(IN_PHASE))
@gen_test()
async def test_a_running_request_can_be_cancelled_in_every_phase(phase):
    engine = FakeEngine(seconds=IN_PHASE[phase])
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        await eventually(lambda: future.progress().phase is phase)
        assert await future.cancel("changed my mind") is True
        assert future.cancelled()
        with pytest.raises(GenerationCancelled, match="changed my mind") as caught:
            await future
        assert isinstance(caught.value, CancelledError)
        assert isinstance(await future.exception(), GenerationCancelled)
        await eventually(lambda: future.progress().phase is Phase.CANCELLED)
        await cluster.is_clean()


@gen_test()
async def test_a_queued_request_can_be_cancelled():
    engine = FakeEngine(seconds=FakeSeconds(step=FOREVER))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        running, queued = await client.map(prompts(2))
        await eventually(lambda: running.progress().phase is Phase.DENOISING)
        assert await queued.cancel() is True
        with pytest.raises(GenerationCancelled, match="cancelled by its client"):
            await queued
        assert not running.done()


@gen_test()
async def test_what_has_ended_is_not_cancelled():
    async with serving() as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        await future
        assert await future.cancel() is False
        assert isinstance(await future, Video)


@gen_test()
async def test_dasks_own_cancel_works_too():
    engine = FakeEngine(seconds=FakeSeconds(step=FOREVER))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        await client.dask.cancel([future])
        with pytest.raises(GenerationCancelled):
            await future
        await cluster.is_clean()


@gen_test()
async def test_dropping_the_last_future_cancels_the_request():
    engine = FakeEngine(seconds=FakeSeconds(step=FOREVER))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        future = await client.submit("a circle")
        table = cluster.control.reactor.controller.table
        await eventually(lambda: table.live[future.key].phase is Phase.DENOISING)  # noqa: F821
        del future
        await cluster.is_clean()
        assert table.ended[Phase.CANCELLED] == 1


@gen_test()
async def test_a_client_that_vanishes_takes_its_requests_along():
    engine = FakeEngine(seconds=FakeSeconds(step=FOREVER))
    async with serving(1, make=lambda: engine) as cluster:
        client = await connect(cluster)
        futures = await client.map(prompts(3))
        await eventually(lambda: futures[0].progress().phase is Phase.DENOISING)
        topics = cluster.scheduler._broker._topics
        assert any(client.dask.id in topic for topic in topics)
        client.dask.scheduler_comm.comm.abort()
        await cluster.is_clean()
        assert not any(client.dask.id in topic for topic in topics if "elastic" in topic)
        await client.close()


# -------------------------------------------------------------------------------- bad requests
BAD = [
    ({"width": 0}, "width = 0: must be a whole number of 1 or more"),
    ({"width": 33}, "width = 33: must be a multiple of 16 from 16 to 96, such as 32 or 48"),
    ({"height": 4096}, "height = 4096: must be a multiple of 16 from 16 to 96"),
    ({"num_frames": 15}, "num_frames = 15: must be 4k \\+ 1 from 1 to 17"),
    ({"num_inference_steps": 0}, "num_inference_steps = 0: must be"),
    ({"num_inference_steps": 10**6}, "num_inference_steps = 1000000: must be from 1 to 100"),
    ({"seed": -1}, "seed = -1: must be"),
    ({"seed": 2**64}, "seed = 18446744073709551616: must be a whole number of at most"),
    ({"width": -(2**70)}, "width = -1180591620717411303424: must be"),
    ({"guidance_scale": float("nan")}, "guidance_scale = nan: must be a finite number"),
    ({"guidance_scale": "much"}, "guidance_scale = 'much': must be"),
    ({"prompt": ""}, "prompt = '': must be a text that is not empty"),
    ({"prompt": "   "}, "must be a text that is not empty"),
    ({"prompt": "word " * 10_000}, "prompt = '10001 tokens': must be at most 16 tokens long"),
    ({"negative_prompt": "word " * 20}, "'21 tokens': must be at most 16 tokens long"),
    ({"request_id": "no spaces"}, "request_id = 'no spaces': must be 1 to 64 letters"),
    ({"deadline_s": 0}, "deadline_s = 0: must be"),
    ({"prompt": "bad \udcff"}, "prompt = .*: must be valid Unicode"),
    ({"prompt": b"a circle"}, "prompt = .*: must be a plain text or number"),
    ({"prompt": ["a", "b"]}, "prompt = .*: must be a plain text or number"),
]


@gen_test()
async def test_bad_fields_are_named_with_what_is_allowed_and_nothing_runs():
    async with serving() as cluster, connect(cluster) as client:
        for options, message in BAD:
            with pytest.raises(InvalidRequest, match=message):
                await client.submit(**{"prompt": "a circle", **options})
        with pytest.raises(UnknownModel, match="model = 'sora': must be one of fake"):
            await client.submit("a circle", model="sora")
        with pytest.raises(InvalidRequest):
            await client.map(["a circle", "", "a square"])
        table = cluster.control.reactor.controller.table
        assert not table.live
        assert not table.finished
        await eventually(lambda: not client.dask.futures)


@gen_test()
async def test_every_script_and_symbol_is_a_prompt():
    async with serving() as cluster, connect(cluster) as client:
        for text in ("红色的圆", "赤い 円 が 左 へ", "🔴➡️", "a\u0000b", "\ud7ff" * 10):
            future = await client.submit(text)
            assert (await future).request.prompt == text


@gen_test()
async def test_the_first_configured_model_is_the_default():
    other = FAKE_CARD.model_copy(update={"name": "other"})
    config = Config.parse({**QUICK.model_dump(), "models": [{"name": "other", "path": "x"}]})

    def make():
        return FakeEngine([FAKE_CARD, other])

    async with serving(config=config, make=make) as cluster, connect(cluster) as client:
        assert [card.name for card in await client.models()] == ["other", "fake"]
        assert (await client.submit("a circle")).request.model == "other"
        assert (await (await client.submit("a circle", model="fake"))).request.model == "fake"


# ---------------------------------------------------------------------------- same request ids
@gen_test()
async def test_the_same_submission_twice_is_one_job():
    engine = FakeEngine(seconds=FakeSeconds(step=0.01))
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        first, second = await asyncio.gather(
            *(client.submit("a circle", request_id="r1") for _ in range(2))
        )
        assert first.request == second.request
        assert np.array_equal((await first).frames, (await second).frames)
        late = await client.submit("a circle", request_id="r1")
        assert late.progress().phase is Phase.COMPLETED
        assert (await late).records == first.records
        assert cluster.control.reactor.controller.table.ended[Phase.COMPLETED] == 1


@gen_test()
async def test_two_clients_share_a_job_and_each_may_leave():
    engine = FakeEngine(seconds=FakeSeconds(step=0.02))
    async with serving(1, make=lambda: engine) as cluster, AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(connect(cluster)) for _ in range(2)]
        mine = await one.submit("a circle", request_id="r1", seed=1)
        yours = await two.submit("a circle", request_id="r1", seed=1)
        await mine.cancel()
        with pytest.raises(GenerationCancelled):
            await mine
        video = await yours
        assert video.records
        assert cluster.control.reactor.controller.table.ended[Phase.COMPLETED] == 1


@gen_test()
async def test_one_id_for_two_different_requests_is_a_conflict():
    async with serving() as cluster, connect(cluster) as client:
        future = await client.submit("a circle", request_id="r1")
        with pytest.raises(RequestConflict, match="differs in prompt, width"):
            await client.submit("a square", request_id="r1", width=48)
        assert isinstance(await future, Video)


@gen_test()
async def test_an_id_whose_result_is_gone_runs_again():
    async with serving() as cluster, connect(cluster) as client:
        for seed in (1, 2):
            future = await client.submit("a circle", request_id="r1", seed=seed)
            assert (await future).request.seed == seed
            del future
            await cluster.is_clean()
        cancelled = await client.submit("a circle", request_id="r2")
        await cancelled.cancel()
        again = await client.submit("a circle", request_id="r2")
        assert isinstance(await again, Video)


@gen_test()
async def test_an_id_dropped_and_taken_again_at_once_runs_again():
    async with serving() as cluster, connect(cluster) as client:
        for seed in range(5):
            # Dask tells of the drop on another connection than the next submission takes.
            await client.submit("a circle", request_id="r1", seed=seed)
            again = await client.submit("a circle", request_id="r1", seed=seed + 1)
            assert isinstance(await again, Video)
            del again
        await cluster.is_clean()
        assert repr(cluster.control.desk.fences) == "<Fences: 0 open>"


@gen_test()
async def test_the_name_of_a_dask_task_is_no_request_id():
    async with serving() as cluster, connect(cluster) as client:
        task = client.dask.submit(lambda: 1, key="r1")
        assert await task == 1
        with pytest.raises(InvalidRequest, match="not the name of a Dask task"):
            await client.submit("a circle", request_id="r1")
        assert await task == 1


@gen_test()
async def test_a_full_queue_refuses_with_a_time_to_come_back():
    config = quick(max_waiting=2)
    engine = FakeEngine(seconds=FakeSeconds(encoder=FOREVER))
    options = {"config": config, "make": lambda: engine}
    async with serving(1, **options) as cluster, connect(cluster) as client:
        kept = await client.submit("a circle")
        await eventually(lambda: kept.progress().phase is Phase.ENCODING)
        with pytest.raises(AdmissionRefused, match=r"the limit is 2; retry after \d+ s"):
            await client.map(prompts(5))
        live = cluster.control.reactor.controller.table.live
        await eventually(lambda: list(live) == [kept.key])


# -------------------------------------------------------------------------------------- waits
@gen_test()
async def test_a_submission_waits_for_the_first_engine():
    async with serving(0) as cluster, connect(cluster) as client:
        submission = asyncio.ensure_future(client.submit("a circle"))
        await eventually(lambda: client.dask.futures)
        assert not submission.done()
        await cluster.add_engine()
        assert isinstance(await (await submission), Video)


@gen_test()
async def test_no_engine_within_the_limit_is_not_ready():
    config = Config.parse({"client": {"ready_timeout_s": 0.1}})
    async with serving(0, config=config) as cluster, connect(cluster) as client:
        with pytest.raises(NotReady, match=r"no engine has joined within 0\.1 s"):
            await client.submit("a circle")
        assert await client.models() == ()


@gen_test()
async def test_engines_that_do_not_answer_are_waited_for_so_long_and_no_longer():
    config = Config.parse({"client": {"ready_timeout_s": 0.1, "submit_timeout_s": 0.4}})
    async with serving(1, config=config) as cluster, connect(cluster) as client:

        async def hang(model, text):
            await asyncio.Event().wait()

        cluster.workers[0].handlers["elastic_dit_count_tokens"] = hang
        with pytest.raises(NotReady, match=r"no engine answered within 0\.5 s"):
            await client.submit("a circle")
        assert not cluster.control.reactor.controller.table.live


@gen_test()
async def test_a_wrong_address_is_unreachable_within_the_limit():
    config = Config.parse({"client": {"connect_timeout_s": 0.5}})
    with pytest.raises(SchedulerUnreachable, match="no Dask scheduler answers at"):
        await elastic_dit.Client("tcp://127.0.0.1:9", config=config, asynchronous=True)


@pytest.mark.parametrize("address", ["", "nonsense", "nonsense://x", "127.0.0.1:notaport"])
@gen_test()
async def test_what_is_no_address_is_said_to_be_none(address):
    with pytest.raises(ConfigError, match=f"scheduler = '{address}': must be an address like"):
        await elastic_dit.Client(address, asynchronous=True)


@gen_test()
async def test_tls_needs_certificates():
    with pytest.raises(ConfigError, match="security = None: must be certificates"):
        await elastic_dit.Client("tls://127.0.0.1:9", asynchronous=True)


@gen_test()
async def test_certificates_are_not_for_an_address_in_the_clear():
    security = distributed.Security.temporary()
    wanted = "scheduler = 'tcp://127.0.0.1:9': must be a tls:// address"
    with pytest.raises(ConfigError, match=wanted):
        await elastic_dit.Client("tcp://127.0.0.1:9", security=security, asynchronous=True)
    with pytest.raises(ConfigError, match=wanted):
        await ensure_control("tcp://127.0.0.1:9", security=security)


def test_a_failed_connection_leaves_nothing_half_open():
    threads = set(threading.enumerate())
    config = Config.parse({"client": {"connect_timeout_s": 0.5}})
    with pytest.raises(SchedulerUnreachable):
        elastic_dit.Client("tcp://127.0.0.1:9", config=config)
    started = [thread for thread in threading.enumerate() if thread not in threads]
    for thread in started:
        thread.join(timeout=5)
    assert not any(thread.is_alive() for thread in started)


@gen_test()
async def test_numbers_of_numpy_are_numbers():
    async with serving() as cluster, connect(cluster) as client:
        future = await client.submit("a circle", width=np.int64(48), guidance_scale=np.float32(2))
        assert (future.request.width, future.request.guidance_scale) == (48, 2.0)
        await future


@gen_test(config={"distributed.comm.timeouts.connect": "1s"})
async def test_a_lost_control_plane_is_a_cluster_error():
    config = Config.parse({"client": {"connect_timeout_s": 1.0}})
    async with serving(0, config=config) as cluster, connect(cluster) as client:
        await cluster.scheduler.close()
        with pytest.raises(ClusterError):
            await client.status()


@pytest.mark.parametrize("target", [None, 5, object()])
def test_a_client_needs_an_address(target):
    with pytest.raises(ConfigError, match="the address of a Dask scheduler, or a cluster"):
        elastic_dit.Client(target)


@pytest.mark.parametrize("content", [None, "", "[]", "{}"])
def test_a_scheduler_file_without_an_address_is_said_to_be_one(tmp_path, content):
    path = tmp_path / "scheduler.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SchedulerUnreachable, match=f"no Dask scheduler's address in {path}"):
        elastic_dit.Client(scheduler_file=path)


@gen_test()
async def test_a_scheduler_file_leads_to_the_cluster(tmp_path):
    path = tmp_path / "scheduler.json"
    async with serving(1, scheduler_file=str(path)) as cluster:
        client = elastic_dit.Client(scheduler_file=path, asynchronous=True)
        assert cluster.scheduler.address in repr(client)
        async with client:
            assert await (await client.submit("a circle"))


@gen_test()
async def test_a_closed_client_says_so():
    async with serving(1) as cluster:
        async with connect(cluster) as client:
            future = await client.submit("a circle", num_inference_steps=100)
        with pytest.raises(GenerationCancelled, match="its client was closed"):
            await future
        with pytest.raises(ClusterError, match="this client is closed"):
            await client.submit("a circle")


@gen_test()
async def test_a_borrowed_dask_client_stays_open_and_serves_two():
    async with (
        serving() as cluster,
        distributed.Client(cluster.scheduler.address, asynchronous=True) as dask,
    ):
        async with elastic_dit.Client(dask) as first, elastic_dit.Client(dask) as second:
            assert first.asynchronous
            futures = [await c.submit("a circle") for c in (first, second)]
            for future in futures:
                await future
                assert future.records
        assert dask.status == "running"


@gen_test()
async def test_a_closed_client_is_not_kept():
    async with serving(1) as cluster:
        async with connect(cluster) as client:
            await (await client.submit("a circle"))
            kept = weakref.ref(client.dask)
        del client
        gc.collect()
        assert kept() is None


@gen_test()
async def test_map_takes_no_request_id():
    async with serving(0) as cluster, connect(cluster) as client:
        with pytest.raises(TypeError, match="request_id"):
            client.map(["a circle"], request_id="r1")


@gen_test(timeout=60)
async def test_connections_to_engines_that_went_are_bounded(monkeypatch):
    monkeypatch.setattr("elastic_dit.client._CONNECTIONS", 2)
    async with serving(1) as cluster, connect(cluster) as client:
        for number in range(4):
            await (await client.submit("a red circle", request_id=f"r{number}"))
            assert client.dask.rpc.open <= 2
            left = cluster.workers.pop()
            await cluster.add_engine(name=f"w-{number}-next")
            await left.close()
        await eventually(lambda: len(cluster.control.reactor.directory) == 1)
