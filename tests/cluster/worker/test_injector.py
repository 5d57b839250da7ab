"""Faults on purpose, and that nobody sees anything of them but later."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elastic_dit.cluster.worker.injector import Injector
from elastic_dit.config import Config, FaultsConfig
from elastic_dit.engine.fake import FakeEngine, fake_frames
from elastic_dit.events import StageDone, StageFailed
from elastic_dit.request import Stage
from tests.cluster.bench import FAKE, Channel, request, run, runner, source_of, start


def faulty(**faults: float) -> Config:
    settings = FAKE.model_dump() | {"faults": {"seed": 1, **faults}}
    return Config.parse(settings | {"transfer": {"backoff_s": 0.001, "attempts": 30}})


def test_nothing_is_wrapped_without_a_seed() -> None:
    injector = Injector(FaultsConfig(transfer_loss=1.0))
    channel, engine = Channel(), FakeEngine()
    assert injector.around_channel(channel) is channel
    assert injector.around_engine(engine) is engine


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        ({"transfer_corruption": 0.5}, "damaged"),
        ({"transfer_loss": 0.5}, "lost"),
        ({"transfer_delay": 1.0, "transfer_delay_s": 0.01}, "delayed"),
    ],
)
def test_a_bad_network_changes_no_pixel(faults: dict[str, float], what: str) -> None:
    async def check() -> None:
        async with runner() as (first, channel):
            first.handle(start(), {})
            conditioning = (await channel.event(StageDone)).output
            there = Channel(source_of({"there": first}))
            async with runner(channel=there, gpu=1, config=faulty(**faults)) as (other, _):
                for attempt in range(1, 9):
                    inputs = (conditioning,)
                    for stage in (Stage.DIT, Stage.DECODER):
                        fence = {"attempt": attempt, "epoch": attempt, "gpu": 1}
                        other.handle(start(stage, inputs=inputs, **fence), {0: "there"})
                        done = 2 * attempt - (stage is Stage.DIT)
                        await there.until(lambda done=done: len(there.of(StageDone)) == done)
                        inputs = (there.of(StageDone)[-1].output,)
                assert np.array_equal(there.results["r"].frames, fake_frames(request()))
                assert other.injector.injected[what] > 0

    run(check())


def test_a_decode_without_memory_succeeds_in_tiles() -> None:
    async def check() -> None:
        async with runner(config=faulty(decode_out_of_memory=1.0)) as (desk, channel):
            inputs: tuple[object, ...] = ()
            for count, stage in enumerate((Stage.ENCODER, Stage.DIT), start=1):
                desk.handle(start(stage, inputs=inputs), {})
                await channel.until(lambda count=count: len(channel.of(StageDone)) == count)
                inputs = (channel.of(StageDone)[-1].output,)
            decode = start(Stage.DECODER, inputs=inputs)
            desk.handle(decode, {})
            failure = (await channel.event(StageFailed)).failure
            assert (failure.error_type, failure.retryable) == ("MemoryError", True)
            desk.handle(dataclasses.replace(decode, attempt=2, tiled=True), {})
            await channel.until(lambda: channel.done(Stage.DECODER))
            assert desk.injector.injected["out_of_memory"] == 1

    run(check())
