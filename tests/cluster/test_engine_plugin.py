from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed import Client, Future, Worker
from distributed.utils_test import gen_cluster

from elastic_dit.cluster.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, fake_frames
from elastic_dit.events import LoadStage, StageDone, StageLoaded, StartStage
from elastic_dit.request import Stage
from tests.cluster.wire_control import WireControl

pytestmark = pytest.mark.cluster

FAKE = Config.parse({"engine": {"backend": "fake"}})


async def engine_on(worker: Worker, index: int = 0) -> EnginePlugin:
    plugin = EnginePlugin(FAKE, device="cpu", node="machine", index=index)
    await worker.plugin_add(plugin, catch_errors=False)
    return plugin


@gen_cluster(client=True)
async def test_three_stages_over_two_workers_end_as_a_result_of_dask(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    control = WireControl()
    await control.attach(scheduler)
    for index, worker in enumerate((a, b)):
        await engine_on(worker, index)
    await control.until(lambda: len(control.gpus) == 2)
    for stage in Stage:
        for gpu in (0, 1):
            control.send(gpu, LoadStage(gpu=gpu, model="fake", stage=stage, plan_epoch=1))
    await control.until(lambda: sum(isinstance(e, StageLoaded) for _, e in control.events) == 6)
    request = FAKE_CARD.complete({"prompt": "a red circle", "request_id": "r1", "seed": 3})
    inputs: tuple[Any, ...] = ()
    for gpu, stage in zip((0, 1, 0), Stage, strict=True):
        start = StartStage(
            request=request, attempt=1, epoch=1, stage=stage, gpus=(gpu,), inputs=inputs, reason=""
        )
        control.send(gpu, start)
        await control.until(
            lambda stage=stage: any(
                isinstance(e, StageDone) and e.stage is stage for _, e in control.events
            )
        )
        inputs = (control.events[-1][1].output,)
    address = control.addresses[0]
    scheduler.new_task("r1", None, "released")
    scheduler.client_desires_keys(["r1"], client.id)
    scheduler.update_data(who_has={"r1": [address]}, nbytes={"r1": 1})
    result = await Future("r1", client)
    assert np.array_equal(result.frames, fake_frames(request))
