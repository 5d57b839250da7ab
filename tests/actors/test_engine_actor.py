from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed import Client, Worker
from distributed.utils_test import gen_cluster

from elastic_dit.actors.engine_actor import engine_actor
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine
from elastic_dit.errors import ClusterError, InvalidRequest, ModelLoadError
from elastic_dit.events import StageLoaded
from elastic_dit.request import Stage, StageKey
from tests.cluster.wire_control import WireControl

pytestmark = pytest.mark.cluster


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class Odd(FakeEngine):
    """Raises what Dask cannot carry when it is to drop the decoder."""

    def drop(self, key: StageKey) -> None:
        if key.stage is Stage.DECODER:
            raise Unpicklable("of its own kind")
        super().drop(key)


def make_engine(config: Config, device: str) -> FakeEngine:
    return Odd(
        cards=(FAKE_CARD,),
        load_failures={StageKey("fake", Stage.DECODER): "bad checksum"},
        device=device,
    )


async def bounded(call: Any) -> Any:
    async with asyncio.timeout(20):
        return await call


async def made(client: Client, worker: Worker) -> Any:
    plugin = EnginePlugin(Config(), device="cpu", node="machine", index=0, make_engine=make_engine)
    await worker.plugin_add(plugin, catch_errors=False)
    return await engine_actor(client, worker.address)


@gen_cluster(client=True)
async def test_loads_drops_and_looks(client: Client, scheduler: Any, a: Worker, b: Worker) -> None:
    control = WireControl()
    await control.attach(scheduler)
    actor = await made(client, a)
    await control.until(lambda: control.gpus)
    assert await bounded(actor.load("fake", "dit")) >= 0.0
    loaded = await control.event(StageLoaded)
    assert (loaded.model, loaded.stage) == ("fake", Stage.DIT)
    seen = await bounded(actor.inspect())
    assert seen["resident"] == [["fake", "dit"]]
    assert (seen["name"], seen["device"], seen["draining"]) == (a.name, "cpu", False)
    await bounded(actor.drop("fake", "dit"))
    assert (await bounded(actor.inspect()))["resident"] == []


@gen_cluster(client=True)
async def test_errors_come_back_and_none_hangs(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    actor = await made(client, a)
    with pytest.raises(ModelLoadError, match="bad checksum"):
        await bounded(actor.load("fake", "decoder"))
    with pytest.raises(ClusterError, match="no stage is called 'vae'"):
        await bounded(actor.load("fake", "vae"))
    with pytest.raises(ClusterError, match="Unpicklable: of its own kind"):
        await bounded(actor.drop("fake", "decoder"))
    with pytest.raises(InvalidRequest, match="num_frames = 15"):
        await bounded(actor.profile([{"num_frames": 15}]))


@gen_cluster(client=True)
async def test_profile_times_resident_stages(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    actor = await made(client, a)
    assert await bounded(actor.profile([{}])) == []
    await bounded(actor.load("fake", "dit"))
    shapes = [{"width": 48, "num_inference_steps": 3}, {"num_frames": 1}]
    rows = await bounded(actor.profile(shapes))
    assert [(row["stage"], row["width"], row["num_frames"]) for row in rows] == [
        ("dit", 48, 9),
        ("dit", 64, 1),
    ]
    assert [len(row["step_seconds"]) for row in rows] == [3, 12]
    assert all(row["seconds"] >= 0 for row in rows)


@gen_cluster(client=True)
async def test_a_new_actor_finds_the_same_engine(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    actor = await made(client, a)
    await bounded(actor.load("fake", "dit"))
    assert await bounded(actor.drain(5.0))
    again = await engine_actor(client, a.address)
    seen = await bounded(again.inspect())
    assert seen["resident"] == [["fake", "dit"]]
    assert seen["draining"]


@gen_cluster(client=True)
async def test_a_worker_without_an_engine_says_so(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    with pytest.raises(ClusterError, match="has no engine"):
        await bounded(engine_actor(client, b.address))
