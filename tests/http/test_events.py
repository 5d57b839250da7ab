"""``/v1/videos/{id}/events``."""

from __future__ import annotations

import json

import pytest

from elastic_dit.config import HttpConfig
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.http.asgi import Caller, client_of, living, run

FIELDS = {"phase", "step", "total_steps", "dop", "queue_position", "eta_s"}


async def begun(desk: FakeDesk, client) -> str:
    return (await client.post("/v1/videos", json={"prompt": "a ring"})).json()["id"]


def event(part: bytes) -> tuple[str, dict]:
    name, data, empty, end = part.decode().split("\n")
    assert (empty, end) == ("", "")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_every_change_is_told_and_the_end_is_the_last(end):
    async def main():
        desk = FakeDesk()
        async with living(desk) as app, client_of(app) as client:
            job_id = await begun(desk, client)
            caller = Caller(app, "GET", f"/v1/videos/{job_id}/events")
            name, job = event(await caller.part())
            assert (name, job["phase"]) == ("progress", "queued")
            assert set(job) >= FIELDS
            for phase, step in ((Phase.ENCODING, 0), (Phase.DENOISING, 1), (Phase.DENOISING, 2)):
                desk.move(job_id, phase, step)
                name, job = event(await caller.part())
                assert (name, job["phase"], job["step"]) == ("progress", str(phase), step)
            if end == "completed":
                desk.complete(job_id)
            elif end == "failed":
                desk.fail(job_id, "ValueError: no")
            else:
                await desk.cancel(job_id, "no more")
            name, job = event(await caller.part())
            assert (name, job["status"]) == (end, end)
            assert await caller.part() == b""
            await caller.task

    run(main())


def test_silence_is_broken_by_comments():
    async def main():
        desk = FakeDesk()
        async with living(desk, HttpConfig(keepalive_s=0.01)) as app, client_of(app) as client:
            job_id = await begun(desk, client)
            caller = Caller(app, "GET", f"/v1/videos/{job_id}/events")
            await caller.part()
            assert (await caller.part()).startswith(b": ")
            desk.complete(job_id)
            while (part := await caller.part()).startswith(b": "):
                pass
            assert event(part)[0] == "completed"
            await caller.task

    run(main())


def test_a_reader_who_goes_leaves_room_for_another():
    async def main():
        desk = FakeDesk()
        async with living(desk, HttpConfig(max_waits=1)) as app, client_of(app) as client:
            job_id = await begun(desk, client)
            url = f"/v1/videos/{job_id}/events"
            caller = Caller(app, "GET", url)
            await caller.part()
            assert (await client.get(url)).json()["error"]["code"] == "too_many_waits"
            await caller.hang_up()
            await eventually(lambda: app.open == 0)
            second = Caller(app, "GET", url)
            assert event(await second.part())[0] == "progress"
            await second.hang_up()
            assert (await client.get(f"/v1/videos/{job_id}")).json()["status"] == "queued"

    run(main())


def test_streams_end_with_their_server():
    async def main():
        desk = FakeDesk()
        async with living(desk) as app, client_of(app) as client:
            job_id = await begun(desk, client)
            caller = Caller(app, "GET", f"/v1/videos/{job_id}/events")
            await caller.part()
            app.waits.closing.set()
            assert await caller.part() == b""
            await caller.task
            assert (await client.get(f"/v1/videos/{job_id}")).json()["status"] == "queued"

    run(main())


def test_a_lost_cluster_ends_the_stream_with_an_error():
    async def main():
        desk = FakeDesk()
        async with living(desk) as app, client_of(app) as client:
            job_id = await begun(desk, client)
            caller = Caller(app, "GET", f"/v1/videos/{job_id}/events")
            await caller.part()
            desk.unreachable = True
            desk.move(job_id, Phase.ENCODING)
            name, body = event(await caller.part())
            assert (name, body["error"]["code"]) == ("error", "cluster_unavailable")
            assert await caller.part() == b""

    run(main())


def test_what_is_not_there_has_no_events():
    async def main():
        async with living(FakeDesk()) as app, client_of(app) as client:
            assert (await client.get("/v1/videos/video_x/events")).status_code == 404

    run(main())
