"""``/v1/images`` over a desk that does as it is told."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx2
import pytest

from elastic_dit.config import HttpConfig
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.http.asgi import Caller, api, client_of, living, run

PROMPT = {"prompt": "a red ring"}
URL = "/v1/images/generations"
STARTS = {"png": b"\x89PNG", "webp": b"RIFF", "jpeg": b"\xff\xd8"}


@pytest.mark.parametrize("output_format", STARTS)
@pytest.mark.parametrize("response_format", ["b64_json", "url"])
def test_images(output_format, response_format):
    async def main():
        async with api(FakeDesk(instant=True)) as client:
            body = {**PROMPT, "n": 2, "seed": 2**63 - 1, "size": "96x48",
                    "output_format": output_format, "response_format": response_format}  # fmt: skip
            answer = (await client.post(URL, json=body)).json()
            assert [image["seed"] for image in answer["data"]] == [2**63 - 1, 0]
            assert (answer["size"], answer["output_format"]) == ("96x48", output_format)
            assert answer["inference_time_s"] == 3.0
            for image in answer["data"]:
                if response_format == "url":
                    assert image["b64_json"] is None
                    file = await client.get(image["url"])
                    assert file.headers["content-type"] == f"image/{output_format}"
                    content = file.content
                else:
                    content = base64.b64decode(image["b64_json"])
                assert content.startswith(STARTS[output_format])

    run(main())


def test_behind_a_prefix_addresses_have_it():
    async def main():
        async with living(FakeDesk(instant=True)) as app:
            transport = httpx2.ASGITransport(app, root_path="/video")
            async with httpx2.AsyncClient(transport=transport, base_url="http://p/video") as client:
                body = {**PROMPT, "response_format": "url"}
                [image] = (await client.post(URL, json=body)).json()["data"]
                assert image["url"].startswith("http://p/video/v1/images/img_")
                assert (await client.get(image["url"])).content.startswith(STARTS["png"])

    run(main())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 11}, "n"),
        ({"num_frames": 5}, "num_frames"),
        ({"response_format": "file"}, "response_format"),
        ({"stream": True}, "stream"),
        ({"quality": "hd"}, "quality"),
    ],
)
def test_what_an_image_cannot_be(body, param):
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.post(URL, json={**PROMPT, **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)

    run(main())


def test_where_not_all_images_are_taken_none_is_made():
    async def main():
        desk = FakeDesk(max_waiting=2)
        async with api(desk) as client:
            answer = await client.post(URL, json={**PROMPT, "n": 3})
            assert answer.status_code == 429
            assert {status.phase for status in desk._jobs.values()} == {Phase.CANCELLED}

    run(main())


@pytest.mark.parametrize("key", [None, b"again"])
def test_who_hangs_up_cancels_unless_it_can_come_back(key):
    async def main():
        desk = FakeDesk()
        async with living(desk) as app:
            caller = Caller(app, "POST", URL, json.dumps(PROMPT).encode(), key)
            await eventually(lambda: desk._jobs)
            [job_id] = desk._jobs
            await caller.hang_up()
            status = await desk.status_of(job_id)
            assert status.phase is (Phase.CANCELLED if key is None else Phase.QUEUED)
            if key is not None:
                desk.complete(job_id)
                async with client_of(app) as client:
                    headers = {"Idempotency-Key": key.decode()}
                    answer = await client.post(URL, json=PROMPT, headers=headers)
                    assert [image["id"] for image in answer.json()["data"]] == [job_id]
                    assert len(desk._jobs) == 1

    run(main())


def test_an_image_that_takes_too_long_is_504_and_one_that_fails_500():
    async def main():
        desk = FakeDesk()
        async with api(desk, HttpConfig(answer_timeout_s=0.01)) as client:
            assert (await client.post(URL, json=PROMPT)).status_code == 504
        async with api(desk) as client:
            before = set(desk._jobs)
            asked = asyncio.ensure_future(client.post(URL, json=PROMPT))
            await eventually(lambda: set(desk._jobs) - before)
            desk.fail(*set(desk._jobs) - before, "MemoryError: no room")
            answer = await asked
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                500,
                "generation_failed",
            )

    run(main())


def test_one_image_that_is_gone_does_not_save_the_others():
    async def main():
        desk = FakeDesk()
        async with api(desk, HttpConfig(answer_timeout_s=0.2)) as client:
            asked = asyncio.ensure_future(client.post(URL, json={**PROMPT, "n": 3}))
            await eventually(lambda: len(desk._jobs) == 3)
            await desk.forget(next(iter(desk._jobs)))
            assert (await asked).status_code in (404, 504)
            assert {status.phase for status in desk._jobs.values()} == {Phase.CANCELLED}

    run(main())


def test_too_many_who_wait_are_told_to_come_back():
    async def main():
        desk = FakeDesk()
        async with living(desk, HttpConfig(max_waits=1)) as app, client_of(app) as client:
            waiting = Caller(app, "POST", URL, json.dumps(PROMPT).encode())
            await eventually(lambda: desk._jobs)
            answer = await client.post(URL, json=PROMPT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_waits")
            await waiting.hang_up()
            desk._instant = True
            assert (await client.post(URL, json=PROMPT)).status_code == 200

    run(main())
