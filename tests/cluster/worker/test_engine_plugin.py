from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed import Client, Future, Worker
from distributed.utils_test import gen_cluster

from elastic_dit.cluster.messages import COMMAND_OP
from elastic_dit.cluster.worker import engine_plugin
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine, fake_frames
from elastic_dit.events import LoadStage, Release, StageDone, StageLoaded, StartStage
from elastic_dit.request import Stage
from tests.cluster.wire_control import WireControl

pytestmark = pytest.mark.cluster

FAKE = Config.parse({"engine": {"backend": "fake"}})


async def add_engine(worker: Worker, index: int = 0, **options: Any) -> EnginePlugin:
    plugin = EnginePlugin(FAKE, device="cpu", node="machine", index=index, **options)
    await worker.plugin_add(plugin, catch_errors=False)
    return plugin


async def serving(scheduler: Any, *workers: Worker) -> tuple[WireControl, list[EnginePlugin]]:
    """A control and an engine with all stages on each worker."""
    control = WireControl()
    await control.attach(scheduler)
    plugins = []
    for gpu, worker in enumerate(workers):
        plugins.append(await add_engine(worker, gpu))
        await control.until(lambda gpu=gpu: len(control.gpus) == gpu + 1)
        for stage in Stage:
            control.send(gpu, LoadStage(gpu=gpu, model="fake", stage=stage, plan_epoch=1))
    await control.until(
        lambda: sum(isinstance(e, StageLoaded) for _, e in control.events) == 3 * len(workers)
    )
    return control, plugins


async def generate(control: WireControl, request: Any, gpus: tuple[int, int, int]) -> Any:
    inputs: tuple[Any, ...] = ()
    for gpu, stage in zip(gpus, Stage, strict=True):
        control.send(
            gpu,
            StartStage(
                request=request, attempt=1, epoch=1, stage=stage, gpus=(gpu,), inputs=inputs,
                reason="",
            ),
        )  # fmt: skip
        done = await control.until(
            lambda stage=stage: [
                event
                for _, event in control.events
                if isinstance(event, StageDone)
                and (event.request_id, event.stage) == (request.request_id, stage)
            ]
        )
        inputs = (done[0].output,)
    return inputs[0]


@gen_cluster(client=True)
async def test_three_stages_over_two_workers_end_as_a_result_of_dask(
    client: Client, scheduler: Any, a: Worker, b: Worker
) -> None:
    control, plugins = await serving(scheduler, a, b)
    request = FAKE_CARD.complete({"prompt": "a red circle", "request_id": "r1", "seed": 3})
    output = await generate(control, request, (0, 1, 0))
    future = Future("r1", client)
    scheduler.new_task("r1", None, "released")
    scheduler.client_desires_keys(["r1"], client.id)
    scheduler.update_data(who_has={"r1": [control.addresses[0]]}, nbytes={"r1": output.nbytes})
    control.send(0, Release(artifact=output))
    await control.ping(0)
    assert output not in set(plugins[0].runner.outbox)
    result = await future
    assert np.array_equal(result.frames, fake_frames(request))
    assert [record.source for record in plugins[1].runner.inbox.records] == [0]
    assert [record.source for record in plugins[0].runner.inbox.records] == [1]


@gen_cluster(client=False)
async def test_hello_waits_for_a_control_plane_and_is_repeated_until_answered(
    scheduler: Any, a: Worker, b: Worker
) -> None:
    plugin = await add_engine(a)
    assert not await plugin._is_heard()
    control = WireControl(deaf_for=1)
    await control.attach(scheduler)
    await control.until(lambda: control.gpus)
    first, second = control.hellos
    assert first == second
    assert first["name"] == str(a.name)
    assert (first["node"], first["index"], first["device"]) == ("machine", 0, "cpu")
    assert list(first["resident"]) == []
    assert [card["name"] for card in first["models"]] == ["fake"]
    await control.ping(0)
    assert plugin.runner.host.gpu == 0
    assert a.address in scheduler.workers


@gen_cluster(client=False)
async def test_handlers_answer(scheduler: Any, a: Worker, b: Worker) -> None:
    control, plugins = await serving(scheduler, a)
    request = FAKE_CARD.complete({"prompt": "a red circle", "request_id": "r1", "seed": 3})
    output = await generate(control, request, (0, 0, 0))
    engine = b.rpc(a.address)
    assert await engine.elastic_dit_count_tokens(model="fake", text="one two three") == 4
    with pytest.raises(ValueError, match="model = 'none'"):
        await engine.elastic_dit_count_tokens(model="none", text="one")
    seen = await engine.elastic_dit_inspect()
    assert seen["gpu"] == 0
    kept = [(ref["stage"], ref["step"]) for ref in seen["outbox"]]
    assert kept == [("encoder", 0), ("dit", 0), ("decoder", 0)]
    assert seen["outbox_bytes"] == plugins[0].runner.outbox.nbytes
    assert [transfer["tries"] for transfer in seen["transfers"]] == [0, 0]
    channel = engine_plugin.WorkerChannel(b)
    encoded = await channel.fetch(a.address, output)
    assert encoded is not None
    assert encoded.digest() == output.digest
    plugins[0].runner.outbox.release(output)
    assert await channel.fetch(a.address, output) is None


@gen_cluster(client=False)
async def test_a_command_it_cannot_read_does_not_end_the_stream(
    scheduler: Any, a: Worker, b: Worker
) -> None:
    control, _ = await serving(scheduler, a)
    nonsense = {"op": COMMAND_OP, "command": {"type": "Nonsense"}, "addresses": {}}
    scheduler.stream_comms[a.address].send(nonsense)
    await control.ping(0)
    assert a.address in scheduler.workers


@gen_cluster(client=False)
async def test_teardown_leaves_a_worker_that_ignores_late_commands(
    scheduler: Any, a: Worker, b: Worker
) -> None:
    handlers = set(a.handlers)
    plugin = await add_engine(a)
    assert set(a.handlers) - handlers == {
        "elastic_dit_fetch",
        "elastic_dit_count_tokens",
        "elastic_dit_allowed_dops",
        "elastic_dit_inspect",
        "elastic_dit_keep_result",
        "elastic_dit_restore_result",
    }
    await a.plugin_remove(EnginePlugin.name)
    assert set(a.handlers) == handlers
    assert a.stream_handlers[COMMAND_OP](command={}, addresses={}) is None
    assert plugin._greeting.cancelled()


def broken_engine(config: Config, device: str) -> FakeEngine:
    raise OSError("no such device")


@gen_cluster(nthreads=[])
async def test_a_failing_engine_stops_its_worker(scheduler: Any) -> None:
    plugin = EnginePlugin(FAKE, device="cpu", node="machine", index=0, make_engine=broken_engine)
    with pytest.raises(RuntimeError, match="failed to start"):
        await Worker(scheduler.address, plugins=(plugin,))
    assert not scheduler.workers
