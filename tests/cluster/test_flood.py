"""More work than the cluster takes: refusals are typed and quick, and nothing else suffers."""

from __future__ import annotations

import asyncio

import pytest
from distributed.utils_test import gen_test

from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.errors import (
    AdmissionRefused,
    DeadlineInfeasible,
    GenerationCancelled,
    InvalidRequest,
)
from elastic_dit.results import Video
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, serving

pytestmark = pytest.mark.cluster

STEP_S = 0.005
STEPS = 4


def limits(**admission: object) -> Config:
    return Config.parse({**QUICK.model_dump(exclude={"admission"}), "admission": admission})


def make():
    return FakeEngine(seconds=FakeSeconds(step=STEP_S))


@gen_test(timeout=90)
async def test_a_flood_is_refused_at_once_and_what_was_accepted_ends():
    flood = 500
    async with (
        serving(2, config=limits(max_queued_gpu_seconds=1.0), make=make) as cluster,
        connect(cluster) as client,
    ):
        reactor = cluster.control.reactor
        # From here on it is known what requests take.
        await (await client.submit("a circle", num_inference_steps=STEPS))

        async def submit(index):
            try:
                return await client.submit(f"circle {index}", num_inference_steps=STEPS)
            except AdmissionRefused as refusal:
                return refusal

        async def keep_cancelling(flooding):
            """Cancel is heard in the midst of it, and never refused."""
            stopped = 0
            while not flooding.done():
                live = list(reactor.controller.table.live)
                if live and await client.cancel(live[-1], "in the flood"):
                    stopped += 1
                await asyncio.sleep(0)
            return stopped

        flooding = asyncio.gather(*(submit(index) for index in range(flood)))
        stopped = await keep_cancelling(flooding)
        answers = await flooding
        refusals = [answer for answer in answers if isinstance(answer, AdmissionRefused)]
        futures = [answer for answer in answers if not isinstance(answer, AdmissionRefused)]
        assert refusals
        assert futures
        assert stopped
        assert all("GPU-seconds are queued" in refusal.reason for refusal in refusals)
        assert all(0 < refusal.retry_after_s < 60 for refusal in refusals)
        ends = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(end) for end in ends} <= {Video, GenerationCancelled}
        assert sum(isinstance(end, GenerationCancelled) for end in ends) == stopped
        del flooding, answers, futures, ends
        await cluster.is_clean()
        assert not reactor.checking
        assert not reactor.controller.table.live
        # Retry-after is worth something: what was refused is taken once the queue has drained.
        assert isinstance(await (await client.submit("a circle")), Video)


@gen_test(timeout=90)
async def test_what_is_refused_costs_no_engine_a_question():
    async with (
        serving(1, config=limits(max_per_client=1), make=lambda: FakeEngine(
            seconds=FakeSeconds(step=60.0)
        )) as cluster,
        connect(cluster) as client,
    ):  # fmt: skip
        future = await client.submit("a circle", owner="me")

        async def never(model, text):
            raise AssertionError("an engine was asked")

        cluster.control.desk._intake._count_tokens = never
        with pytest.raises(AdmissionRefused, match="me has 1 requests in the cluster") as caught:
            await client.submit("a circle", owner="me")
        assert caught.value.retry_after_s > 0
        with pytest.raises(InvalidRequest, match=r"prompt = .*100000 characters"):
            await client.submit("x" * 100_001, owner="you")
        assert await future.cancel()


@gen_test(timeout=90)
async def test_a_deadline_that_cannot_be_met_is_refused_at_once():
    async with serving(1, make=make) as cluster, connect(cluster) as client:
        await (await client.submit("a circle", num_inference_steps=STEPS))
        with pytest.raises(DeadlineInfeasible, match=r"deadline_s = 0\.001: must be at least"):
            await client.submit("a circle", deadline_s=0.001)
        assert isinstance(await (await client.submit("a circle", deadline_s=60.0)), Video)
        await eventually(lambda: not cluster.control.reactor.controller.table.live)


@gen_test(timeout=90)
async def test_a_refused_batch_leaves_those_alone_that_were_there():
    async with (
        serving(1, config=limits(max_per_client=3), make=lambda: FakeEngine(
            seconds=FakeSeconds(step=60.0)
        )) as cluster,
        connect(cluster) as client,
    ):  # fmt: skip
        kept = await client.submit("a circle", request_id="kept")
        with pytest.raises(AdmissionRefused):
            await client.map([f"circle {index}" for index in range(4)])
        assert list(cluster.control.reactor.controller.table.live) == [kept.key]
