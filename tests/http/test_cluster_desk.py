"""The API over real clusters of fake engines in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
from distributed.utils_test import gen_test
from prometheus_client.parser import text_string_to_metric_families
from tornado.httpclient import AsyncHTTPClient

from elastic_dit.cluster.plane.metrics_desk import METRICS_PAGE
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.errors import GenerationCancelled, ResultGone, UnknownRequest
from elastic_dit.http.cluster_desk import ClusterDesk
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, Cluster, connect, quick, serving
from tests.http.asgi import Caller, client_of, living
from tests.http.test_events import event

pytestmark = pytest.mark.cluster

PROMPT = {"prompt": "a red ring"}
PLENTY = 2**30
FOREVER = FakeSeconds(step=60.0)
UNHURRIED = FakeSeconds(step=0.05)


@contextlib.asynccontextmanager
async def desk_of(cluster: Cluster, results_bytes: int = PLENTY) -> AsyncIterator[ClusterDesk]:
    async def connected():
        return await connect(cluster)

    desk = ClusterDesk(connected, results_bytes)
    try:
        yield desk
    finally:
        await desk.close()


@contextlib.asynccontextmanager
async def front_end(cluster: Cluster):
    async with desk_of(cluster) as desk, living(desk) as app, client_of(app) as client:
        yield app, client


async def until(client, job_id: str, status: str) -> dict:
    """The job once it has a status."""
    return await asked(client, f"/v1/videos/{job_id}", lambda job: job.json()["status"] == status)


async def asked(client, url: str, enough) -> dict:
    """The answer once it is good enough: nobody tells when that is."""
    deadline_s = time.monotonic() + 20
    while not enough(answer := await client.get(url)):
        assert time.monotonic() < deadline_s, answer.text
        await asyncio.sleep(0.02)
    return answer.json()


@gen_test()
async def test_a_video_and_an_image_from_a_cluster():
    async with serving(2) as cluster, front_end(cluster) as (_, client):
        job = (await client.post("/v1/videos", json={**PROMPT, "seconds": 1})).json()
        done = await until(client, job["id"], "completed")
        assert set(done["stage_durations"]) == set(Stage)
        content = await client.get(f"/v1/videos/{job['id']}/content")
        assert content.headers["content-type"] == "video/mp4"
        images = await client.post("/v1/images/generations", json={**PROMPT, "n": 2})
        assert len(images.json()["data"]) == 2


@gen_test()
async def test_what_one_front_end_takes_the_other_shows_cancels_and_deletes():
    engine = FakeEngine(seconds=FOREVER)
    async with (
        serving(1, make=lambda: engine) as cluster,
        front_end(cluster) as (_, one),
        front_end(cluster) as (_, two),
    ):
        headers = {"Idempotency-Key": "k"}
        jobs = [
            (await client.post("/v1/videos", json=PROMPT, headers=headers)).json()
            for client in (one, two)
        ]
        assert jobs[0]["id"] == jobs[1]["id"]
        listed = [(await client.get("/v1/videos")).json()["data"] for client in (one, two)]
        assert [[job["id"] for job in page] for page in listed] == [[jobs[0]["id"]]] * 2
        url = f"/v1/videos/{jobs[0]['id']}"
        assert (await two.post(f"{url}/cancel")).json()["status"] == "cancelled"
        assert (await one.get(url)).json()["status"] == "cancelled"
        assert (await one.delete(url)).status_code == 200
        assert (await two.get(url)).status_code == 404


@gen_test()
async def test_events_come_from_the_cluster_to_any_front_end():
    engine = FakeEngine(seconds=UNHURRIED)
    async with (
        serving(1, make=lambda: engine) as cluster,
        front_end(cluster) as (_, one),
        front_end(cluster) as (app, _),
    ):
        job = (await one.post("/v1/videos", json={**PROMPT, "num_inference_steps": 6})).json()
        caller = Caller(app, "GET", f"/v1/videos/{job['id']}/events")
        seen = []
        while part := await caller.part():
            seen.append(event(part))
        await caller.task
        assert [name for name, _ in seen][-1] == "completed"
        assert {name for name, _ in seen[:-1]} == {"progress"}
        steps = [body["step"] for _, body in seen]
        assert steps == sorted(steps)
        assert len(set(steps)) >= 3
        assert {body["dop"] for _, body in seen if body["phase"] == "denoising"} == {1}


@gen_test()
async def test_hanging_up_on_an_image_frees_its_gpu():
    engine = FakeEngine(seconds=FOREVER)
    async with (
        serving(1, make=lambda: engine) as cluster,
        front_end(cluster) as (app, _),
    ):
        live = cluster.control.reactor.controller.table.live
        caller = Caller(app, "POST", "/v1/images/generations", b'{"prompt": "a ring"}')
        await eventually(lambda: any(job.phase is Phase.DENOISING for job in live.values()))
        await caller.hang_up()
        await eventually(lambda: not live)
        pool = cluster.control.reactor.controller.pool
        await eventually(lambda: all(gpu.is_idle for gpu in pool))


@gen_test()
async def test_a_failure_reaches_the_job():
    failure = FakeFailure(stage=Stage.DIT, request_id="video_bad", error=MemoryError("no room"))
    config = quick(max_attempts=1)
    engine = FakeEngine(failures=[failure])
    async with serving(1, config=config, make=lambda: engine) as cluster, desk_of(cluster) as desk:
        await desk.submit({**PROMPT, "request_id": "video_bad"}, "http")
        states = [status async for status in desk.watch("video_bad")]
        assert states[-1].phase is Phase.FAILED
        assert states[-1].error_type == "MemoryError"


@gen_test()
async def test_results_beyond_the_limit_are_let_go_of_and_said_to_be_gone():
    async with serving(1) as cluster, desk_of(cluster, results_bytes=1) as desk:
        first = await desk.submit({**PROMPT, "request_id": "video_1"}, "http")
        result = await desk.result("video_1")
        assert np.array_equal(result.frames, fake_frames(first.request))
        await desk.submit({**PROMPT, "request_id": "video_2"}, "http")
        del result
        await eventually(lambda: "video_1" not in cluster.scheduler.tasks)
        with pytest.raises(ResultGone):
            await desk.result("video_1")
        assert (await desk.status_of("video_1")).phase is Phase.COMPLETED


@gen_test()
async def test_results_beyond_the_limit_go_though_nobody_asks_for_more():
    card = FakeEngine().card("fake").defaults
    one = card.width * card.height * card.num_frames * 3
    async with serving(1) as cluster, desk_of(cluster, results_bytes=2 * one) as desk:
        jobs = [await desk.submit({**PROMPT, "request_id": f"video_{i}"}, "http") for i in range(5)]
        for job in jobs:
            changes = [status.phase async for status in desk.watch(job.request_id)]
            assert changes[-1] is Phase.COMPLETED
        await eventually(lambda: set(cluster.scheduler.tasks) == {"video_3", "video_4"})
        result = await desk.result("video_4")
        assert np.array_equal(result.frames, fake_frames(jobs[4].request))


@gen_test()
async def test_a_forgotten_job_leaves_nothing():
    async with serving(1) as cluster, desk_of(cluster) as desk, connect(cluster) as other:
        for number in range(2):  # the same id is free again
            status = await desk.submit({**PROMPT, "request_id": "video_1", "seed": number}, "http")
            assert status.request.seed == number
            await desk.result("video_1")
            held = await other.future("video_1")
            await desk.forget("video_1")
            with pytest.raises(UnknownRequest):
                await desk.status_of("video_1")
            with pytest.raises(UnknownRequest):
                await desk.forget("video_1")
            await eventually(lambda: not cluster.scheduler.tasks)
            await eventually(lambda held=held: held.cancelled())
            with pytest.raises(GenerationCancelled):
                await held
            del held
        await cluster.is_clean()


@gen_test()
async def test_a_journal_keeps_jobs_over_a_restart_and_forgets_them_when_told(tmp_path):
    journal = {"path": str(tmp_path / "journal.sqlite")}
    config = Config.parse({**QUICK.model_dump(exclude={"journal"}), "journal": journal})
    async with serving(1, config=config) as cluster, front_end(cluster) as (_, client):
        job = (await client.post("/v1/videos", json=PROMPT)).json()
        await until(client, job["id"], "completed")
        other = (await client.post("/v1/videos", json=PROMPT)).json()
        await until(client, other["id"], "completed")
    url = f"/v1/videos/{job['id']}"
    async with serving(1, config=config) as cluster, front_end(cluster) as (_, client):
        assert (await client.get(url)).json()["expires_at"] > job["created_at"]
        assert (await client.get(f"{url}/content")).status_code == 200
        files = [path.name for path in tmp_path.rglob("*") if job["id"] in path.name]
        assert len(files) == 1
        assert (await client.delete(url)).status_code == 200
        assert [path.name for path in tmp_path.rglob("*") if job["id"] in path.name] == []
    async with serving(1, config=config) as cluster, front_end(cluster) as (_, client):
        assert (await client.get(url)).status_code == 404
        listed = (await client.get("/v1/videos")).json()["data"]
        assert [each["id"] for each in listed] == [other["id"]]


@gen_test()
async def test_readiness_waits_for_every_stage():
    slow = FakeEngine(seconds=FakeSeconds(load=0.3))
    async with serving(0) as cluster, front_end(cluster) as (_, client):
        answer = await client.get("/ready")
        assert (answer.status_code, answer.json()["gpus"]) == (503, 0)
        refused = await client.post("/v1/videos", json={**PROMPT, "seconds": 1})
        assert refused.json()["error"]["code"] == "not_ready"
        await cluster.add_engine(lambda: slow)
        ready = await asked(client, "/ready", lambda answer: answer.status_code == 200)
        assert ready["models"] == ["fake"]


@gen_test()
async def test_metrics_of_a_load_on_both_pages():
    engine = FakeEngine(seconds=FakeSeconds(encoder=0.01, step=0.01, decoder=0.01))
    async with serving(1, make=lambda: engine) as cluster, front_end(cluster) as (_, client):
        jobs = [(await client.post("/v1/videos", json=PROMPT)).json() for _ in range(3)]
        await client.post("/v1/videos", json={**PROMPT, "size": "33x64"})
        for job in jobs:
            await until(client, job["id"], "completed")
        mine = (await client.get("/metrics")).text
        port = cluster.scheduler.http_server.port
        page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}{METRICS_PAGE}")
        for text in (mine, page.body.decode()):
            samples = {
                (sample.name, *sorted(sample.labels.values())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            assert samples["elastic_dit_requests_accepted_total", "fake"] == 3
            assert samples["elastic_dit_requests_success_total", "fake", "stop"] == 3
            assert samples["elastic_dit_requests_refused_total", "InvalidRequest"] == 1
            assert samples["elastic_dit_e2e_request_latency_s_count", "fake", "video"] == 3
            for stage in Stage:
                labels = sorted(("fake", stage))
                assert samples["elastic_dit_num_requests_waiting", *labels] == 0
                assert samples["elastic_dit_request_queue_time_s_count", *labels] == 3
                assert samples["elastic_dit_stage_attempts_total", "1", *labels] == 3
                assert samples["elastic_dit_stage_utilization_ratio", *labels] == 0
            assert samples["elastic_dit_run_per_step_dit_duration_s_count", "1", "fake"] >= 3
            assert samples["elastic_dit_transfers_local_total", "dit", "encoder"] == 3
        assert "elastic_dit_cluster_up 1.0" in mine


@gen_test()
async def test_a_cluster_that_comes_back_is_found_again():
    waits = {"connect_timeout_s": 0.3, "ready_timeout_s": 10.0}
    config = Config.parse({**QUICK.model_dump(exclude={"client"}), "client": waits})
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(serving(1, config=config))
        port = int(cluster.scheduler.address.rpartition(":")[2])
        async with front_end(cluster) as (_, client):
            await asked(client, "/ready", lambda answer: answer.status_code == 200)
            await stack.aclose()
            lost = await asked(client, "/v1/videos", lambda answer: answer.status_code == 503)
            assert lost["error"]["code"] == "cluster_unavailable"
            async with serving(1, config=config, port=port):
                await asked(client, "/ready", lambda answer: answer.status_code == 200)
                assert (await client.post("/v1/videos", json=PROMPT)).status_code == 200
