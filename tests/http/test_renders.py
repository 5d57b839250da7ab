"""Files of results: made once, kept within bounds."""

from __future__ import annotations

import asyncio

import pytest

from elastic_dit.engine.fake import FAKE_CARD, fake_frames
from elastic_dit.http.renders import Renders
from elastic_dit.results import make_result
from tests.http.asgi import run

REQUEST = FAKE_CARD.complete({"prompt": "a", "request_id": "video_1", "seed": 1})
RESULT = make_result(fake_frames(REQUEST), REQUEST)


def named(job_id):
    return REQUEST.model_copy(update={"request_id": job_id})


class Source:
    def __init__(self, error: Exception | None = None) -> None:
        self.fetched = 0
        self.error = error
        self.released = asyncio.Event()

    async def __call__(self):
        self.fetched += 1
        await self.released.wait()
        if self.error is not None:
            raise self.error
        return RESULT


def renders(folder, **options):
    return Renders(folder, **{"encoders": 1, "max_bytes": 2**20, "fetch_s": 10.0, **options})


def test_all_who_ask_at_once_get_one_file(tmp_path):
    async def main():
        files, source = renders(tmp_path), Source()
        asked = [
            asyncio.ensure_future(files.file(named("video_1"), "video", source)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        asked[0].cancel()  # one goes; the others wait on
        source.released.set()
        assert len({await each for each in asked[1:]}) == 1
        await files.file(named("video_1"), "video", source)
        assert source.fetched == 1

    run(main())


def test_a_failure_is_told_to_all_and_tried_again_for_the_next(tmp_path):
    async def main():
        files, source = renders(tmp_path), Source(ValueError("gone"))
        source.released.set()
        asked = [files.file(named("video_1"), "video", source) for _ in range(2)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(each) for each in told] == ["gone", "gone"]
        source.error = None
        assert (await files.file(named("video_1"), "video", source)).exists()

    run(main())


def test_a_result_that_does_not_come_is_not_waited_for(tmp_path):
    async def main():
        files = renders(tmp_path, fetch_s=0.01)
        with pytest.raises(TimeoutError):
            await files.file(named("video_1"), "video", Source())
        source = Source()
        source.released.set()
        assert (await files.file(named("video_2"), "video", source)).exists()

    run(main())


def test_the_least_wanted_files_go_first(tmp_path):
    async def main():
        source = Source()
        source.released.set()
        first = await renders(tmp_path).file(named("video_0"), "video", source)
        files = renders(tmp_path, max_bytes=2 * first.stat().st_size + 10)
        for name in ("video_1", "video_2", "video_1", "video_3"):
            await files.file(named(name), "video", source)
        assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {
            "video_0", "video_1", "video_3",
        }  # fmt: skip
        files.forget("video_1")
        assert not list(tmp_path.glob("video_1*"))

    run(main())
