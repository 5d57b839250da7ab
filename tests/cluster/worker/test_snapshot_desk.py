"""Snapshots handed over in mid-run, and copies of them: without Dask, without torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds, fake_frames
from elastic_dit.events import (
    ArtifactCopied,
    Release,
    Replicate,
    SnapshotKept,
    StageDone,
)
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef
from tests.cluster.bench import FAKE, Channel, request, run, runner, source_of, start

EVERY = 4
CONFIG = Config.parse(
    {
        **FAKE.model_dump(),
        "control": {"checkpoint_every": EVERY, "checkpoint_interval_s": 0.0},
    }
)


def test_a_run_resumes_elsewhere_from_the_copy_of_a_snapshot() -> None:
    async def check() -> None:
        first = runner(config=CONFIG)
        async with first as (desk, channel):
            desk.handle(start(), {})
            inputs = ((await channel.event(StageDone)).output,)
            desk.handle(start(Stage.DIT, inputs=inputs), {})
            await channel.until(lambda: len(channel.of(SnapshotKept)) == 2)
            kept = [event.snapshot for event in channel.of(SnapshotKept)]
            assert [snapshot.step for snapshot in kept] == [4, 8]
            await channel.until(lambda: channel.done(Stage.DIT))

            other = Channel(source_of({"there": desk}))
            async with runner(channel=other, gpu=1, config=CONFIG) as (keeper, _):
                keeper.handle(Replicate(artifact=kept[0], gpu=1), {0: "there"})
                copy = (await other.event(ArtifactCopied)).copy
                assert copy == replace(kept[0], gpu=1)
                assert list(keeper.outbox) == [copy]
                assert keeper.snapshots.spare == 1

                resumed = start(Stage.DIT, inputs=(copy,), attempt=2, gpu=1)
                keeper.handle(resumed, {})
                await other.until(lambda: other.done(Stage.DIT))
                await other.until(lambda: other.of(SnapshotKept))  # encoded beside the run
                assert [e.snapshot.step for e in other.of(SnapshotKept)] == [8]
                latents = (await other.event(StageDone)).output
                decode = start(Stage.DECODER, inputs=(latents,), attempt=2, gpu=1)
                keeper.handle(decode, {})
                await other.until(lambda: other.done(Stage.DECODER))
                assert np.array_equal(other.results["r"].frames, fake_frames(request()))
                keeper.handle(Release(artifact=copy), {})
                assert copy not in list(keeper.outbox)
                assert keeper.snapshots.spare == 0

    run(check())


def test_a_copy_that_cannot_be_pulled_is_said_to_be_lost() -> None:
    async def check() -> None:
        lost = ArtifactRef(
            request_id="r", attempt=1, stage=Stage.DIT, gpu=0, nbytes=1, digest="d", step=4
        )
        async with runner(gpu=1, config=CONFIG) as (desk, channel):
            desk.handle(Replicate(artifact=lost, gpu=1), {0: "there"})
            assert "no longer held" in (await channel.event(ArtifactCopied)).failure
            desk.handle(Replicate(artifact=replace(lost, step=8), gpu=1), {})
            await channel.until(lambda: len(channel.of(ArtifactCopied)) == 2)
            assert "has left" in channel.of(ArtifactCopied)[-1].failure
            assert not len(desk.outbox)

    run(check())


def test_a_released_copy_is_not_pulled_any_further() -> None:
    async def check() -> None:
        source = FakeEngine(seconds=FakeSeconds(step=0.001))
        async with runner(source, config=CONFIG) as (desk, channel):
            desk.handle(start(), {})
            inputs = ((await channel.event(StageDone)).output,)
            desk.handle(start(Stage.DIT, inputs=inputs), {})
            kept = (await channel.event(SnapshotKept)).snapshot
            async with runner(
                gpu=1, channel=Channel(source_of({"there": desk})), config=CONFIG
            ) as (
                it,
                other,
            ):
                it.handle(Replicate(artifact=kept, gpu=1), {0: "there"})
                it.handle(Release(artifact=replace(kept, gpu=1)), {})
                it.handle(Replicate(artifact=replace(kept, step=9), gpu=1), {0: "there"})
                await other.event(ArtifactCopied)
                assert [event.copy.step for event in other.of(ArtifactCopied)] == [9]
                assert not len(it.outbox)

    run(check())
