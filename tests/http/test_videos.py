"""``/v1/videos`` over a desk that does as it is told."""

from __future__ import annotations

import base64
import io
import json
import logging

import numpy as np
import pytest

from elastic_dit.config import HttpConfig
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.keys import ApiKeys
from elastic_dit.media import read_comment
from elastic_dit.state import Phase
from tests.http.asgi import KEY, OTHER_KEY, Caller, api, client_of, living, run

PROMPT = {"prompt": "a red ring"}


def picture(kind: str = "PNG") -> bytes:
    from elastic_dit.input_image import sample_image

    buffer = io.BytesIO()
    sample_image(32, 16).save(buffer, kind)
    return buffer.getvalue()


def error_of(answer):
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"type", "message", "param", "code"}
    return body["error"]


def test_a_job_from_its_creation_to_its_file(tmp_path):
    async def main():
        desk = FakeDesk()
        async with api(desk) as client:
            created = await client.post("/v1/videos", json={**PROMPT, "seed": 3, "size": "96x48"})
            assert created.status_code == 200
            job = created.json()
            assert job["id"].startswith("video_")
            assert (job["object"], job["status"], job["progress"]) == ("video", "queued", 0)
            assert (job["size"], job["seed"], job["model"]) == ("96x48", 3, "fake")
            assert 100 <= int(created.headers["openai-poll-after-ms"]) <= 5000
            desk.move(job["id"], Phase.DENOISING, 3)
            seen = (await client.get(f"/v1/videos/{job['id']}")).json()
            assert (seen["status"], seen["step"], seen["progress"]) == ("in_progress", 3, 25)
            early = await client.get(f"/v1/videos/{job['id']}/content")
            assert early.status_code == 404
            assert error_of(early)["code"] == "job_in_progress"
            desk.complete(job["id"])
            done = await client.get(f"/v1/videos/{job['id']}")
            assert done.json()["status"] == "completed"
            assert "openai-poll-after-ms" not in done.headers
            content = await client.get(f"/v1/videos/{job['id']}/content")
            assert content.headers["content-type"] == "video/mp4"
            (tmp_path / "clip.mp4").write_bytes(content.content)
            assert '"seed": 3' in read_comment(tmp_path / "clip.mp4")

    run(main())


@pytest.mark.parametrize(
    ("variant", "kind", "start"),
    [("thumbnail", "image/webp", b"RIFF"), ("spritesheet", "image/jpeg", b"\xff\xd8")],
)
def test_previews(variant, kind, start):
    async def main():
        async with api(FakeDesk(instant=True)) as client:
            job = (await client.post("/v1/videos", json=PROMPT)).json()
            answer = await client.get(f"/v1/videos/{job['id']}/content?variant={variant}")
            assert answer.headers["content-type"] == kind
            assert answer.content.startswith(start)

    run(main())


def test_a_part_of_a_file():
    async def main():
        async with api(FakeDesk(instant=True)) as client:
            job = (await client.post("/v1/videos", json=PROMPT)).json()
            url = f"/v1/videos/{job['id']}/content"
            whole = (await client.get(url)).content
            part = await client.get(url, headers={"Range": "bytes=4-11"})
            assert (part.status_code, part.content) == (206, whole[4:12])

    run(main())


def test_a_form_says_the_same_as_json():
    async def main():
        desk = FakeDesk()
        async with api(desk) as client:
            fields = {"prompt": "a 心 ring", "seconds": "1", "seed": "7", "guidance_scale": "2.5"}
            formed = await client.post(
                "/v1/videos", files={name: (None, value) for name, value in fields.items()}
            )
            assert formed.status_code == 200
            ignored = {"id", "created_at", "seconds_since_event"}
            plain = await client.post("/v1/videos", json=fields)
            bodies = [{k: v for k, v in answer.json().items() if k not in ignored}
                      for answer in (formed, plain)]  # fmt: skip
            assert bodies[0] == bodies[1]
            assert (bodies[0]["num_frames"], bodies[0]["guidance_scale"]) == (9, 2.5)

    run(main())


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "prompt", "missing_parameter"),
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": "   "}, "prompt", "invalid_value"),
        ({"prompt": "word " * 7000}, "prompt", "invalid_value"),
        ({**PROMPT, "colour": "red"}, "colour", "unknown_parameter"),
        ({**PROMPT, "size": "33x64"}, "width", "invalid_value"),
        ({**PROMPT, "num_frames": 15}, "num_frames", "invalid_value"),
        ({**PROMPT, "num_frames": True}, "num_frames", "invalid_value"),
        ({**PROMPT, "seconds": 1e9}, "seconds", "invalid_value"),
        ({**PROMPT, "seconds": "nan"}, "seconds", "invalid_value"),
        ({**PROMPT, "seed": -1}, "seed", "invalid_value"),
        ({**PROMPT, "seed": 2**70}, "seed", "invalid_value"),
        ({**PROMPT, "input_reference": {"image_url": "http://10.0.0.1/a.png"}},
         "input_reference", "invalid_value"),
        ({**PROMPT, "input_reference": {"image_url": "file:///etc/passwd"}},
         "input_reference", "invalid_value"),
        ({**PROMPT, "input_reference": {"image_url": "data:image/png;base64,!"}},
         "input_reference", "invalid_value"),
        ([], None, "invalid_value"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_told_by_its_field(body, param, code):
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.post("/v1/videos", json=body)
            assert answer.status_code == 400, answer.text
            error = error_of(answer)
            assert (error["param"], error["code"]) == (param, code)
            assert error["type"] == "invalid_request_error"
            assert len(error["message"]) < 500

    run(main())


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"prompt": "\\ud800"}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"", "application/json", 400),
        (b"prompt=a", "text/plain", 415),
        (b"no boundary", "multipart/form-data", 400),
        (b"--x\r\nbroken", "multipart/form-data; boundary=x", 400),
        (b"prompt=a&prompt=b", "application/x-www-form-urlencoded", 400),
    ],
)
def test_what_is_no_body(content, kind, status):
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.post(
                "/v1/videos", content=content, headers={"Content-Type": kind}
            )
            assert answer.status_code == status, answer.text
            error_of(answer)

    run(main())


def test_a_model_that_is_not_served():
    async def main():
        async with api(FakeDesk()) as client:
            for body in (
                {**PROMPT, "model": "sora-2"},
                {**PROMPT, "model": "sora-2", "seconds": 1},
            ):
                answer = await client.post("/v1/videos", json=body)
                assert answer.status_code == 404
                assert error_of(answer)["code"] == "model_not_found"
                assert "one of fake" in error_of(answer)["message"]

    run(main())


def test_one_idempotency_key_is_one_job_on_every_front_end():
    async def main():
        desk = FakeDesk()
        headers = {"Idempotency-Key": "my key 心".encode()}
        async with (
            living(desk) as one,
            living(desk) as two,
            client_of(one) as first,
            client_of(two) as second,
        ):
            clients = (first, second, first, second)
            jobs = [await c.post("/v1/videos", json=PROMPT, headers=headers) for c in clients]
            assert len({job.json()["id"] for job in jobs}) == 1
            assert len({job.json()["seed"] for job in jobs}) == 1
            other = await second.post("/v1/videos", json={"prompt": "b"}, headers=headers)
            assert other.status_code == 409
            assert error_of(other)["param"] == "Idempotency-Key"
            assert "prompt" in error_of(other)["message"]
            assert other.headers["x-should-retry"] == "false"
            assert len((await first.get("/v1/videos")).json()["data"]) == 1

    run(main())


def test_a_full_cluster_says_when_to_come_back():
    async def main():
        async with api(FakeDesk(max_waiting=1)) as client:
            assert (await client.post("/v1/videos", json=PROMPT)).status_code == 200
            answer = await client.post("/v1/videos", json=PROMPT)
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "2"
            assert error_of(answer)["type"] == "rate_limit_error"

    run(main())


def test_no_engine_and_no_cluster_are_503():
    async def main():
        desk = FakeDesk(cards=())
        async with api(desk) as client:
            for body in (PROMPT, {**PROMPT, "seconds": 1}):
                answer = await client.post("/v1/videos", json=body)
                assert (answer.status_code, error_of(answer)["code"]) == (503, "not_ready")
                assert int(answer.headers["retry-after"]) >= 1
            desk.unreachable = True
            answer = await client.get("/v1/videos")
            assert error_of(answer)["code"] == "cluster_unavailable"

    run(main())


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages(order):
    async def main():
        desk = FakeDesk(instant=True)
        async with api(desk) as client:
            made = [(await client.post("/v1/videos", json=PROMPT)).json()["id"] for _ in range(7)]
            await client.post("/v1/images/generations", json=PROMPT)  # not among the videos
            wanted = made if order == "asc" else made[::-1]
            seen: list[str] = []
            after = None
            for size in (3, 3, 1):
                query = {"limit": 3, "order": order, **({"after": after} if after else {})}
                page = (await client.get("/v1/videos", params=query)).json()
                seen += [job["id"] for job in page["data"]]
                assert page["has_more"] is (size == 3)
                assert (page["first_id"], page["last_id"]) == (seen[-size], seen[-1])
                after = page["last_id"]
            assert seen == wanted
            empty = (await client.get("/v1/videos", params={"after": after, "order": order})).json()
            assert (empty["data"], empty["has_more"], empty["last_id"]) == ([], False, None)

    run(main())


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up"])
def test_wrong_questions(query):
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.get(f"/v1/videos?{query}")
            assert answer.status_code == 400
            assert error_of(answer)["param"] == query.partition("=")[0]

    run(main())


def test_cancel_is_said_as_often_as_one_likes():
    async def main():
        async with api(FakeDesk()) as client:
            job = (await client.post("/v1/videos", json=PROMPT)).json()
            for _ in range(2):
                answer = await client.post(f"/v1/videos/{job['id']}/cancel")
                assert answer.json()["status"] == "cancelled"

    run(main())


def test_a_deleted_job_is_gone_with_its_files():
    async def main():
        async with api(FakeDesk(instant=True)) as client:
            job = (await client.post("/v1/videos", json=PROMPT)).json()
            url = f"/v1/videos/{job['id']}"
            assert (await client.get(f"{url}/content")).status_code == 200
            deleted = (await client.delete(url)).json()
            assert deleted == {"id": job["id"], "object": "video.deleted", "deleted": True}
            for answer in (
                await client.get(url),
                await client.get(f"{url}/content"),
                await client.delete(url),
                await client.post(f"{url}/cancel"),
            ):
                assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")

    run(main())


def test_a_failed_job_says_why_where_its_file_would_be():
    async def main():
        desk = FakeDesk()
        async with api(desk) as client:
            job = (await client.post("/v1/videos", json=PROMPT)).json()
            desk.fail(job["id"], "MemoryError: no room")
            answer = await client.get(f"/v1/videos/{job['id']}/content")
            assert answer.status_code == 404
            assert error_of(answer)["code"] == "job_failed"
            assert "no room" in error_of(answer)["message"]

    run(main())


def test_each_key_sees_its_own_jobs_only():
    async def main():
        desk = FakeDesk(instant=True)
        async with (
            living(desk, keys=ApiKeys([KEY, OTHER_KEY])) as app,
            client_of(app, KEY) as mine,
            client_of(app, OTHER_KEY) as theirs,
        ):
            job = (await mine.post("/v1/videos", json=PROMPT)).json()
            url = f"/v1/videos/{job['id']}"
            assert (await mine.get(url)).status_code == 200
            for answer in (
                await theirs.get(url),
                await theirs.get(f"{url}/content"),
                await theirs.get(f"{url}/events"),
                await theirs.post(f"{url}/cancel"),
                await theirs.delete(url),
                await theirs.get(f"/v1/videos?after={job['id']}"),
            ):
                assert answer.status_code == 404
            assert (await theirs.get("/v1/videos")).json()["data"] == []

    run(main())


def test_a_picture_comes_as_a_file_or_inside_the_body():
    async def main():
        card = FakeDesk()._cards[0].model_copy(update={"needs_image": True})
        desk = FakeDesk(cards=(card,))
        async with api(desk) as client:
            file = picture()
            url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
            answers = [
                await client.post(
                    "/v1/videos",
                    data={"prompt": "a"},
                    files={"input_reference": ("a.png", file, "image/png")},
                ),
                await client.post(
                    "/v1/videos", json={"prompt": "a", "input_reference": {"image_url": url}}
                ),
            ]
            for answer in answers:
                assert answer.status_code == 200, answer.text
                status = await desk.status_of(answer.json()["id"])
                assert status.request.image.data == file
            missing = await client.post("/v1/videos", json={"prompt": "a"})
            assert error_of(missing)["param"] == "input_reference"
            text = {"input_reference": ("a.txt", b"hello", "text/plain")}
            wrong = await client.post("/v1/videos", data={"prompt": "a"}, files=text)
            assert (wrong.status_code, error_of(wrong)["param"]) == (400, "input_reference")

    run(main())


@pytest.mark.parametrize(
    "fields",
    [
        [("input_reference", "text"), ("input_reference[image_url]", "data:,")],
        [("input_reference[image_url]", "data:,"), ("input_reference[image_url]", "data:,")],
        [("input_reference[image_url]", "data:,"), ("input_reference", picture())],
        [("input_reference", picture()), ("input_reference[image_url]", "data:,")],
        [("input_reference", picture()), ("input_reference", "text")],
    ],
    ids=["text and address", "two addresses", "address and file", "file and address", "file, text"],
)
def test_a_picture_that_is_given_twice_is_refused(fields):
    parts = "".join(
        f'--end\r\nContent-Disposition: form-data; name="{name}"'
        f"{'; filename=a.png' if isinstance(value, bytes) else ''}\r\n\r\n"
        f"{value.decode('latin-1') if isinstance(value, bytes) else value}\r\n"
        for name, value in [("prompt", "a"), *fields]
    )

    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.post(
                "/v1/videos",
                content=f"{parts}--end--\r\n".encode("latin-1"),
                headers={"Content-Type": "multipart/form-data; boundary=end"},
            )
            assert (answer.status_code, error_of(answer)["param"]) == (400, "input_reference")
            assert "given once" in error_of(answer)["message"]

    run(main())


def test_a_file_under_another_name_is_refused():
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.post(
                "/v1/videos", data={"prompt": "a"}, files={"mask": ("a.png", picture())}
            )
            assert (answer.status_code, error_of(answer)["param"]) == (400, "mask")

    run(main())


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    async def main():
        config = HttpConfig(max_body_bytes=1000)
        async with api(FakeDesk(), config) as client:

            async def stream():
                for _ in range(20):
                    yield b"x" * 100

            for content in (b"x" * 1001, stream()):
                answer = await client.post(
                    "/v1/videos", content=content, headers={"Content-Type": "application/json"}
                )
                assert answer.status_code == 413
                assert error_of(answer)["code"] == "body_too_large"

    run(main())


def test_a_body_that_does_not_come_is_not_waited_for():
    async def main():
        async with living(FakeDesk(), HttpConfig(body_timeout_s=0.01)) as app:
            caller = Caller(app, "POST", "/v1/videos")
            caller.sends(b'{"prompt": ', more=True)
            answer = json.loads(await caller.part())
            assert (caller.status, answer["error"]["code"]) == (408, "body_too_slow")
            await caller.hang_up()

    run(main())


def test_who_hangs_up_amid_the_body_is_no_fault_of_the_server(caplog):
    async def main():
        async with living(FakeDesk()) as app:
            caller = Caller(app, "POST", "/v1/videos")
            caller.sends(b'{"prompt": ', more=True)
            await caller.hang_up()
            await caller.part()
            assert caller.status == 499
        assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []

    run(main())


def test_an_id_that_comes_again_has_its_own_file():
    async def main():
        desk = FakeDesk(instant=True)
        async with living(desk) as app, client_of(app) as one:
            headers = {"Idempotency-Key": "k"}
            files = []
            for seed in (1, 2):
                answer = await one.post(
                    "/v1/videos", json={**PROMPT, "seed": seed}, headers=headers
                )
                job_id = answer.json()["id"]
                files.append((await one.get(f"/v1/videos/{job_id}/content")).content)
                await desk.forget(job_id)  # as through another front end
            assert files[0] != files[1]

    run(main())


def test_frames_in_the_file_are_those_of_the_result():
    from PIL import Image

    from elastic_dit.engine.fake import fake_frames

    async def main():
        desk = FakeDesk(instant=True)
        async with api(desk) as client:
            answer = await client.post("/v1/images/generations", json={**PROMPT, "seed": 5})
            [image] = answer.json()["data"]
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(image["b64_json"]))))
            status = await desk.status_of(image["id"])
            assert np.array_equal(pixels, fake_frames(status.request)[0])

    run(main())
