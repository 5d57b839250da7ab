"""A hundred changes of placement under load, over real Dask with pretended engines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import numpy as np
import pytest
from distributed.utils_test import gen_test

from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds, fake_frames
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, PlacementPlan
from tests.cluster.conditions import eventually
from tests.cluster.puppet import register_puppet
from tests.cluster.serving import QUICK, connect, prompts, serving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

CHANGES = 100
GPUS = range(4)
BUDGET = 2
"""Stages that fit an engine's memory, of three."""
ENOUGH = {
    0: (Stage.ENCODER, Stage.DIT),
    1: (Stage.DIT, Stage.DECODER),
    2: (Stage.DIT, Stage.DECODER),
    3: (Stage.DIT,),
}


class SmallEngine(FakeEngine):
    """Remembers how much it ever held at once."""

    most = 0

    def __init__(self) -> None:
        super().__init__(seconds=FakeSeconds(load=0.002, encoder=0.002, step=0.002, decoder=0.002))

    def load(self, key: StageKey) -> float:
        seconds = super().load(key)
        self.most = max(self.most, len(self.info().resident))
        return seconds


def plan(epoch: int, stages: Mapping[GpuId, tuple[Stage, ...]]) -> PlacementPlan:
    residency = {gpu: frozenset(StageKey("fake", s) for s in held) for gpu, held in stages.items()}
    return PlacementPlan(epoch=epoch, residency=residency, reason=f"change {epoch}")


@gen_test(timeout=300)
async def test_a_hundred_changes_lose_and_repeat_nothing_and_fit():
    dice = random.Random(0)
    puppet = register_puppet()
    puppet.stages = ENOUGH
    config = Config.parse({**QUICK.model_dump(), "placement": {"policy": "puppet"}})
    async with (
        serving(len(GPUS), config=config, make=SmallEngine) as cluster,
        connect(cluster) as client,
    ):
        controller = cluster.control.reactor.controller
        publish = client.dask.scheduler.elastic_dit_publish_plan
        await eventually(lambda: controller.plan.residency.keys() == set(GPUS))
        first = controller.plan.epoch + 1
        futures = []
        for epoch in range(first, first + CHANGES):
            if epoch % 2:
                futures += await client.map(prompts(1), num_inference_steps=dice.randrange(1, 12))
            stages = {
                gpu: tuple(dice.sample(tuple(Stage), dice.randrange(BUDGET + 1)))
                for gpu in GPUS
                if dice.random() < 0.6
            }
            assert (await publish(plan=plan(epoch, stages).to_wire()))["accepted"]
            late = plan(epoch - dice.randrange(3), dict.fromkeys(GPUS, ()))
            assert not (await publish(plan=late.to_wire()))["accepted"]
            assert controller.plan.reason == f"change {epoch}"
            await asyncio.sleep(dice.uniform(0.0, 0.04))  # at any moment of what goes on
        assert (await publish(plan=plan(first + CHANGES, ENOUGH).to_wire()))["accepted"]
        for future in futures:
            result = await future
            assert future.progress().attempt == 1
            assert np.array_equal(result.frames, fake_frames(result.request))
        assert len(controller.table.finished) == len(futures) == CHANGES // 2
        assert max(engine.most for engine in cluster.engines) == BUDGET
        del futures, future, result
        await cluster.is_clean()
        drops = [one for one in controller.decisions.placement if one.what == "drop"]
        assert len(drops) > CHANGES / 4, "the changes were real"
