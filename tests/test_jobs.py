"""Requests by their ids, from clients that did not submit them; without a journal."""

from __future__ import annotations

import numpy as np
import pytest
from distributed import Scheduler
from distributed.utils_test import gen_test

from elastic_dit.client import Client
from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.engine.fake import FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.errors import (
    GenerationCancelled,
    GenerationFailed,
    InvalidRequest,
    NotReady,
    ResultGone,
    UnknownRequest,
)
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, prompts, serving

pytestmark = pytest.mark.cluster

FOREVER = 60.0


def slow():
    return FakeEngine(seconds=FakeSeconds(step=FOREVER))


@gen_test(timeout=90)
async def test_another_client_gets_the_result_and_the_progress():
    engine = FakeEngine(seconds=FakeSeconds(step=0.02))
    async with (
        serving(1, make=lambda: engine) as cluster,
        connect(cluster) as mine,
        connect(cluster) as yours,
    ):
        future = await mine.submit("a circle", seed=3, num_inference_steps=10)
        same = await yours.future(future.key)
        assert same.request == future.request
        await eventually(lambda: same.progress().phase is Phase.DENOISING)
        video = await same
        assert np.array_equal(video.frames, fake_frames(future.request))
        assert [record.stage for record in video.records] == list(Stage)
        late = await yours.future(future.key)  # after its end, while somebody holds it
        assert np.array_equal((await late).frames, video.frames)


@gen_test(timeout=90)
async def test_failures_and_cancellations_are_told_to_those_who_come_later():
    engine = FakeEngine(
        failures=[FakeFailure(stage=Stage.DIT, request_id="bad", error=ValueError("no red"))]
    )
    async with serving(1, make=lambda: engine) as cluster, connect(cluster) as client:
        futures = [await client.submit("a circle", request_id=name) for name in ("bad", "off")]
        await futures[1].cancel()
        await eventually(lambda: all(future.done() for future in futures))  # noqa: F821
        status = await client.status_of("bad")
        assert (status.phase, status.error_type) == (Phase.FAILED, "ValueError")
        assert "no red" in status.reason
        del futures
        await eventually(lambda: not cluster.scheduler.tasks)
        with pytest.raises(GenerationFailed, match="no red"):
            await (await client.future("bad"))
        with pytest.raises(GenerationCancelled):
            await (await client.future("off"))
        await cluster.is_clean()


@gen_test(timeout=90)
async def test_ids_that_nobody_knows_and_results_that_nobody_has():
    async with serving(1) as cluster, connect(cluster) as client:
        for question in (client.future, client.status_of):
            with pytest.raises(UnknownRequest, match="'nobody'"):
                await question("nobody")
        assert await client.cancel("nobody") is False
        future = await client.submit("a circle", request_id="r1")
        await future
        assert (await client.status_of("r1")).has_result
        del future
        await cluster.is_clean()
        assert not (await client.status_of("r1")).has_result
        with pytest.raises(ResultGone, match="r1"):
            await client.future("r1")


@gen_test(timeout=90)
async def test_before_anybody_brought_settings_nobody_is_unknown():
    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        for question in (client.future, client.status_of):
            with pytest.raises(NotReady, match="start elastic-dit-worker"):
                await question("r1")
        with pytest.raises(NotReady):
            await client.requests()
        await ensure_control(scheduler.address, config=QUICK)
        assert await client.requests() == []


@gen_test(timeout=90)
async def test_a_request_can_be_cancelled_by_its_id_for_everybody():
    async with (
        serving(1, make=slow) as cluster,
        connect(cluster) as mine,
        connect(cluster) as yours,
    ):
        future = await mine.submit("a circle")
        other = await yours.future(future.key)
        assert await yours.cancel(future.key, "enough") is True
        for one in (future, other):
            with pytest.raises(GenerationCancelled, match="enough"):
                await one
        assert await yours.cancel(future.key) is False
        await cluster.is_clean()


@gen_test(timeout=90)
async def test_requests_are_listed_a_page_at_a_time():
    async with serving(1, make=slow) as cluster, connect(cluster) as client:
        names = [f"r{index}" for index in range(5)]
        futures = [
            await client.submit(prompt, request_id=name, owner="a" if name < "r3" else "b")
            for name, prompt in zip(names, prompts(5), strict=True)
        ]
        await futures[1].cancel()
        first = await client.requests(limit=2)
        rest = await client.requests(limit=9, after=first[-1].request_id)
        assert [status.request_id for status in first + rest] == names[::-1]
        oldest = await client.requests(newest_first=False, ended=False, owner="a")
        assert [status.request_id for status in oldest] == ["r0", "r2"]
        [over] = await client.requests(ended=True)
        assert (over.request_id, over.phase) == ("r1", Phase.CANCELLED)
        assert over.finished_at >= over.accepted_at
        assert over.request.prompt == "a circle number 1"
        with pytest.raises(UnknownRequest):
            await client.requests(after="nobody")
        with pytest.raises(InvalidRequest, match="limit = 0"):
            await client.requests(limit=0)
        with pytest.raises(InvalidRequest, match="owner = ''"):
            await client.submit("a circle", owner="")
