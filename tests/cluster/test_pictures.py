"""A request's picture reaches the encoder over a real Dask cluster, and nobody else."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from distributed.utils_test import gen_test

from elastic_dit.engine.fake import FAKE_CARD, FakeEngine, fake_frames
from elastic_dit.errors import AdmissionRefused, InvalidRequest, RequestConflict
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.request import Stage
from tests.cluster.serving import QUICK, UNHURRIED, connect, serving

pytestmark = pytest.mark.cluster

CARD = FAKE_CARD.model_copy(update={"needs_image": True})
PICTURE = sample_image(96, 48)


class Watching(FakeEngine):
    """Notes for each stage whether the picture's bytes came along."""

    def __init__(self) -> None:
        super().__init__([CARD])
        self.held: dict[Stage, bool] = {}

    def run(self, stage, request, inputs, context):
        self.held[stage] = request.image.is_held
        return super().run(stage, request, inputs, context)


@gen_test()
async def test_pixels_files_and_bytes_make_the_same_video():
    async with serving(1, make=Watching) as cluster, connect(cluster) as client:
        file = InputImage.of(PICTURE).data
        first = await client.submit("it turns", seed=1, image=PICTURE)
        second = await client.submit("it turns", seed=1, image=file)
        videos = await client.gather([first, second])
        assert np.array_equal(videos[0].frames, videos[1].frames)
        assert np.array_equal(videos[0].frames, fake_frames(first.request))
        assert (videos[0].width, videos[0].height) == (80, 32), "the picture's proportions"
        other = await client.submit("it turns", seed=1, image=PICTURE.rotate(90, expand=True))
        assert not np.array_equal((await other).frames.ravel(), videos[0].frames.ravel())
        for told in (first.request, videos[0].request):
            assert told.image == InputImage.of(PICTURE)
            assert not told.image.is_held, "it is not sent back"
        [engine] = cluster.engines
        assert engine.held == {stage: stage is Stage.ENCODER for stage in Stage}


@gen_test()
async def test_one_id_and_another_picture_is_a_conflict():
    async with serving(1, make=Watching) as cluster, connect(cluster) as client:
        same = functools.partial(client.submit, "it turns", request_id="r", seed=1)
        future = await same(image=PICTURE)
        await future
        again = await same(image=PICTURE)
        assert (await again).request == (await future).request
        with pytest.raises(RequestConflict, match="differs in image"):
            await same(image=PICTURE.rotate(180))


@gen_test()
async def test_wrong_pictures_are_refused_here_or_there_and_nothing_runs():
    async with serving(1, make=Watching) as cluster, connect(cluster) as client:
        with pytest.raises(InvalidRequest, match="image = None: must be given: fake starts"):
            await client.submit("it turns")
        with pytest.raises(InvalidRequest, match="a readable file"):
            await client.submit("it turns", image=Path("/nowhere.png"))
        broken = InputImage.of(PICTURE).data[:-40]
        with pytest.raises(InvalidRequest, match="an undamaged file"):
            await client.submit("it turns", image=broken)
        unseen = InputImage.parse(broken)  # as a client would send that does not look itself
        for content, said in ((unseen, "an undamaged file"), ("/etc/hostname", "the content of")):
            with pytest.raises(InvalidRequest, match=said):
                await client._submit([{"prompt": "it turns", "image": content}])
        assert not cluster.control.reactor.controller.table.finished


@gen_test()
async def test_models_without_pictures_refuse_one():
    async with serving(1) as cluster, connect(cluster) as client:
        with pytest.raises(InvalidRequest, match="must be left out: fake takes no picture"):
            await client.submit("it turns", image=PICTURE)


@gen_test()
async def test_pictures_are_limited_in_bytes():
    limit = {"max_image_bytes": InputImage.of(PICTURE).nbytes}
    config = QUICK.model_copy(update={"control": QUICK.control.model_copy(update=limit)})
    make = functools.partial(FakeEngine, [CARD], seconds=UNHURRIED)
    async with serving(1, make=make, config=config) as cluster, connect(cluster) as client:
        first = await client.submit("it turns", image=PICTURE)
        with pytest.raises(AdmissionRefused, match="bytes of images"):
            await client.submit("it turns", image=PICTURE)
        await first
        await (await client.submit("it turns", image=PICTURE))
