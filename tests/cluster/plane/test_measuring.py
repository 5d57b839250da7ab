"""A profile of a cluster of fake engines, measured through the real control plane."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed.utils_test import gen_test

import elastic_dit
from elastic_dit.cli.profile import profile
from elastic_dit.cli.profile_measure import Profiler
from elastic_dit.cli.profile_schema import ProfileReport
from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.cluster.worker import engine_plugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine, FakeSeconds
from elastic_dit.engine.fake_group import FakeGroups
from elastic_dit.engine.protocol import EngineInfo
from elastic_dit.errors import ClusterError, InvalidRequest
from elastic_dit.request import Stage
from elastic_dit.rib import Latency, LatencyKey, Source, software_version
from elastic_dit.rib.store import RibStore
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, Cluster, connect, serving

pytestmark = pytest.mark.cluster

KIND = FakeEngine().info().kind
STEP_S = 0.02


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake engines meet without one."""
    monkeypatch.setattr(StoreHost, "open", lambda self: None)


@contextlib.asynccontextmanager
async def colocated(
    engines: int, dispatch: str = "elastic", **control: Any
) -> AsyncIterator[Cluster]:
    groups = FakeGroups()
    config = QUICK.model_dump()
    config["placement"]["policy"] = "colocated"
    config["control"] |= {"dispatch": dispatch, **control}

    def make() -> FakeEngine:
        return FakeEngine(seconds=FakeSeconds(step=STEP_S, decoder=0.01), groups=groups)

    async with serving(engines, config=Config.parse(config), make=make) as cluster:
        if dispatch != "fcfs":
            cluster.control.reactor.meet_at("nowhere:1")
        pool = cluster.control.reactor.controller.pool
        await eventually(lambda: all(len(gpu.resident) == 3 for gpu in pool))
        yield cluster
        assert cluster.control.reactor.controller.refused == 0


async def in_thread(cluster: Cluster, work: Any, **options: Any) -> Any:
    """``work(profiler)`` with a synchronous client, as the command has one."""

    def run() -> Any:
        with elastic_dit.Client(cluster.scheduler.address, config=cluster.config) as client:
            fields = {"steps": 6, "repeats": 1, "warm_up": 1, "load": "alone", "limit_s": 30.0}
            return work(Profiler(client=client, kind=KIND, **{**fields, **options}))

    return await asyncio.to_thread(run)


@gen_test(timeout=100)
@pytest.mark.parametrize("load", ["alone", "full"])
async def test_every_stage_is_measured_at_every_degree(load: str) -> None:
    def work(profiler: Profiler) -> list[Latency]:
        degrees = profiler.examine({"num_inference_steps": 6})
        assert (degrees.dops, degrees.gpus) == ((1, 2), 2)
        return [each for dop in degrees.dops for each in profiler.measure(degrees, dop)]

    async with colocated(2) as cluster:
        rows = await in_thread(cluster, work, load=load)
        assert [(row.key.stage, row.key.dop) for row in rows] == [
            (Stage.DIT, 1),
            (Stage.ENCODER, 1),
            (Stage.DECODER, 1),
            (Stage.DIT, 2),
        ]
        # A fake group shares each step. Whatever the machine does besides, no run is quicker.
        for row in rows:
            if row.key.stage is Stage.DIT:
                assert row.setup_s + 6 * row.seconds >= 6 * STEP_S / row.key.dop * 0.99
                assert row.seconds > 0
        together = 2 if load == "full" else 1
        assert [row.repeats for row in rows] == [2 * together] * 3 + [2]
        await cluster.is_clean()


@gen_test(timeout=100)
async def test_each_kind_of_gpu_is_told_with_its_own_software(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_kind(kind: str) -> Callable[[], FakeEngine]:
        class OfKind(FakeEngine):
            def info(self) -> EngineInfo:
                return replace(super().info(), kind=kind)

        return lambda: OfKind(seconds=FakeSeconds(step=STEP_S))

    rib, path = tmp_path / "rib.sqlite", tmp_path / "profile.json"
    versions = {"old": "torch 1", "new": "torch 2"}
    async with colocated(0, dispatch="fcfs") as cluster:
        directory = cluster.control.reactor.directory
        pool = cluster.control.reactor.controller.pool
        for number, (kind, version) in enumerate(versions.items(), start=1):
            monkeypatch.setattr(engine_plugin, "software_version", partial(str, version))
            await cluster.add_engine(of_kind(kind))
            await eventually(lambda number=number: len(directory) == number)
        await eventually(lambda: all(len(gpu.resident) == 3 for gpu in pool))
        quick = ["--steps", "3", "--repeats", "1", "--warm-up", "0", "--json", str(path)]
        named = ["--scheduler", cluster.scheduler.address, "--rib", str(rib)]
        await asyncio.to_thread(profile.main, [*named, *quick], standalone_mode=False)
    report = ProfileReport.model_validate_json(path.read_text())
    assert report.software == versions
    said = capsys.readouterr().out
    for kind, software in report.software.items():
        rows = RibStore(str(rib)).load(software)
        assert {r.key.kind for r in rows if r.source is Source.PROFILED} == {kind}
        assert f"With {software} on {kind}" in said


@gen_test(timeout=100)
async def test_requests_of_others_wait_and_are_not_lost() -> None:
    def work(profiler: Profiler) -> list[Latency]:
        return profiler.measure(profiler.examine({"num_inference_steps": 6}), 2)

    async with colocated(2) as cluster, connect(cluster) as client:
        others = await client.map(["a circle"] * 3, num_inference_steps=4)
        measured = asyncio.create_task(in_thread(cluster, work))
        await asyncio.gather(*(other.result() for other in others))
        [row] = await measured
        assert (row.key.dop, row.repeats) == (2, 2)


@gen_test(timeout=100)
async def test_without_groups_there_is_degree_one() -> None:
    def work(profiler: Profiler) -> tuple[int, ...]:
        return profiler.examine({}).dops

    async with colocated(2, dispatch="fcfs") as cluster:
        assert await in_thread(cluster, work) == (1,)


@gen_test(timeout=100)
async def test_what_cannot_be_measured_is_said() -> None:
    def bad_shape(profiler: Profiler) -> None:
        profiler.examine({"width": 33})

    def too_wide(profiler: Profiler) -> None:
        profiler.measure(profiler.examine({}), 64)

    def other_kind(profiler: Profiler) -> None:
        Profiler(**{**vars(profiler), "kind": "H100"}).measure(profiler.examine({}), 1)

    async with colocated(1) as cluster:
        with pytest.raises(InvalidRequest, match="width = 33"):
            await in_thread(cluster, bad_shape)
        with pytest.raises(InvalidRequest, match=f"kind = 'H100': must be one of {KIND}"):
            await in_thread(cluster, other_kind)
        with pytest.raises(ClusterError, match="at degree 64 did not end in time"):
            await in_thread(cluster, too_wide, limit_s=0.2)
        # Its client is gone, and with that the requests that would wait for ever.
        await cluster.is_clean()


@gen_test(timeout=100)
async def test_a_running_cluster_expects_what_was_profiled_and_refines_it(tmp_path: Path) -> None:
    store = RibStore(str(tmp_path / "rib.sqlite"))
    request = FAKE_CARD.complete({"prompt": "a circle", "seed": 0, "request_id": "r"})
    key = LatencyKey.of(request, Stage.DIT, 2, KIND)
    store.save([Latency(key=key, seconds=9.0, source=Source.PROFILED)], software_version())
    rib = {"profile": str(tmp_path / "rib.sqlite"), "profile_interval_s": 0.05}
    async with colocated(2, dispatch="fcfs", **rib) as cluster:
        times = cluster.control.reactor.controller.view.times
        cluster.control.reactor.controller.allowed.widest = None
        await eventually(lambda: times.seconds(request, Stage.DIT, 2) == 9.0)
        assert times.seconds(request, Stage.DECODER) is None
        async with connect(cluster) as client:
            await (await client.submit("a circle", num_inference_steps=8)).result()
        await eventually(lambda: len(store.load(software_version())) == 4)
        assert times.seconds(request, Stage.DECODER) >= 0.01
    sources = {each.key: each.source for each in store.load(software_version())}
    assert sources.pop(key) is Source.PROFILED
    assert set(sources.values()) == {Source.OBSERVED}
    assert {known.kind for known in sources} == {KIND}
