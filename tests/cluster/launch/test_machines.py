"""Machines that are asked for, drained and given back whole, over Dask's own cluster class."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler, SpecCluster, Status
from distributed.utils_test import gen_test

import elastic_dit
from elastic_dit.cluster.launch.devices import find_devices
from elastic_dit.cluster.launch.machines import MachineAdaptive, machines_of
from elastic_dit.cluster.launch.workers import worker_spec
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.state import Phase
from tests.cluster import conditions
from tests.cluster.puppet import EnginesTogether, Puppet, register_puppet
from tests.cluster.serving import QUICK, prompts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


async def eventually(condition: Callable[[], object]) -> None:
    """Several machines start and stop in turn: more patience on one that does much else."""
    await conditions.eventually(condition, limit_s=80.0)


def settings(**placement: Any) -> Config:
    return Config.parse(
        {**QUICK.model_dump(), "placement": {"interval_s": 0.1, "policy": "puppet", **placement}}
    )


LIMITED = settings(min_machines=1, max_machines=2)


class Machines:
    """A cluster of machines that come and go, and what is known of it."""

    def __init__(self, cluster: Any, puppet: Puppet, config: Config) -> None:
        self.cluster, self.puppet, self.config = cluster, puppet, config

    @property
    def control(self) -> ControlPlugin:
        return self.cluster.scheduler.plugins[ControlPlugin.name]

    @property
    def names(self) -> list[str]:
        """Workers there are."""
        return sorted(str(w.name) for w in self.cluster.scheduler.workers.values())

    def serves(self, *machines: str) -> Callable[[], bool]:
        """Whether exactly those machines are there, and hold all stages."""

        def check() -> bool:
            pool = self.control.reactor.controller.pool
            return set(pool.nodes) == set(machines) and all(len(gpu.resident) == 3 for gpu in pool)

        return check

    def client(self) -> elastic_dit.Client:
        address = self.cluster.scheduler.address
        return elastic_dit.Client(address, config=self.config, asynchronous=True)

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        log = self.control.reactor.controller.decisions.placement
        return [(one.what, one.subject) for one in log if one.what in kinds]


@contextlib.asynccontextmanager
async def machines(
    config: Config = LIMITED, *, make: Callable[[], FakeEngine] = FakeEngine, **options: Any
) -> AsyncIterator[Machines]:
    puppet = register_puppet()
    scheduler = {"dashboard": False, "dashboard_address": ":0", "host": "127.0.0.1", "port": 0}
    worker = {
        "cls": EnginesTogether, "options": {"config": config, "make": make}, "group": ["-0", "-1"],
    }  # fmt: skip
    async with SpecCluster(
        scheduler={"cls": Scheduler, "options": scheduler},
        asynchronous=True,
        **{"worker": worker, **options},
    ) as cluster:
        cluster.adapt(Adaptive=MachineAdaptive, config=config, interval="50ms")
        await eventually(lambda: ControlPlugin.name in cluster.scheduler.plugins)
        yield Machines(cluster, puppet, config)


def test_an_entry_is_a_machine_and_so_are_those_of_one_name() -> None:
    entries = {
        "job-0": {"group": ["-0", "-1"]},
        3: {},
        **worker_spec(find_devices(None, 2), name="here", config=Config()),
    }
    found = machines_of(SimpleNamespace(worker_spec=entries))
    assert {name: (m.entries, m.workers) for name, m in found.items()} == {
        "job-0": (["job-0"], {"job-0-0", "job-0-1"}),
        3: ([3], {"3"}),
        "here": (
            ["here-0", "here-1", "here-control"],
            {"here-0", "here-1", "here-control"},
        ),
    }


@gen_test(timeout=300)
async def test_a_second_machine_comes_and_goes_under_load():
    def make():
        return FakeEngine(seconds=FakeSeconds(step=0.02))

    async with machines(make=make) as here:
        await eventually(here.serves("m0"))  # at least one, whoever asks
        async with here.client() as client:
            first = await client.map(prompts(6), num_inference_steps=20)
            here.puppet.nodes = 2
            await eventually(here.serves("m0", "m1"))
            assert here.names == ["0-0", "0-1", "1-0", "1-1"]
            more = await client.map(prompts(6), num_inference_steps=20)
            live = here.control.reactor.controller.table.live
            await eventually(lambda: any(r.group and r.group.master >= 8 for r in live.values()))
            here.puppet.nodes, here.puppet.retire = 1, ("m1",)
            await eventually(here.serves("m0"))
            await eventually(lambda: here.names == ["0-0", "0-1"])
            await eventually(lambda: list(machines_of(here.cluster)) == [0])
            for future in (*first, *more):
                await future
                assert future.progress().attempt == 1
            told = here.told("ask machines", "release machine", "machine leaves")
            assert told == [
                ("ask machines", "2 in all"),
                ("ask machines", "1 in all"),
                ("release machine", "m1"),
                ("machine leaves", "m1"),
            ]


@gen_test(timeout=300)
async def test_results_outlive_the_machine_that_made_them():
    async with machines() as here:
        await eventually(here.serves("m0"))
        here.puppet.nodes = 2
        await eventually(here.serves("m0", "m1"))
        async with here.client() as client:
            futures = await client.map(prompts(8))
            await eventually(lambda: all(f.progress().phase is Phase.COMPLETED for f in futures))
            here.puppet.nodes, here.puppet.retire = 1, ("m1",)
            await eventually(lambda: here.names == ["0-0", "0-1"])
            for future in futures:
                await future
                assert future.progress().attempt == 1


@gen_test(timeout=300)
async def test_no_more_come_and_none_goes_beyond_the_limits():
    async with machines(settings(min_machines=1, max_machines=1)) as here:
        await eventually(here.serves("m0"))
        here.puppet.nodes = 5
        log = here.control.reactor.controller.decisions
        await eventually(lambda: ("ask machines", "5 in all") in here.told("ask machines"))
        here.puppet.nodes, here.puppet.retire = 0, ("m0",)
        await eventually(lambda: here.told("release machine"))
        await asyncio.sleep(0.3)  # nothing happens, which nobody tells
        assert here.names == ["0-0", "0-1"]
        assert not here.told("machine leaves"), list(log)
        here.puppet.retire = ()
        await eventually(here.serves("m0"))


@gen_test(timeout=300)
async def test_without_limits_their_number_is_nobodys_affair():
    async with machines(settings()) as here:
        here.puppet.nodes = 2
        adaptive = here.cluster._adaptive
        assert await adaptive.target() == 0
        assert await adaptive.recommendations(0) == {"status": "same"}


class _Broken(EnginesTogether):
    async def start(self) -> None:
        raise RuntimeError("no such partition")


@gen_test(timeout=300)
async def test_a_machine_that_cannot_be_started_is_given_up(caplog):
    broken = {"cls": _Broken, "options": {"config": LIMITED, "make": FakeEngine}}
    async with machines(worker=broken) as here:
        await eventually(lambda: "no such partition" in caplog.text)
        await eventually(lambda: not here.cluster.worker_spec and not here.cluster.workers)


@gen_test(timeout=300)
async def test_a_machine_that_died_is_closed_and_another_takes_its_place(monkeypatch):
    monkeypatch.setattr("elastic_dit.cluster.launch.machines._LOST_S", 0.2)
    async with machines() as here:
        await eventually(here.serves("m0"))
        dead = here.cluster.workers[0]
        for worker in dead._workers:
            await worker.close()
        await eventually(lambda: here.cluster.workers.get(0) not in (None, dead))
        await eventually(here.serves("m0"))


@gen_test(timeout=300)
async def test_a_machine_that_could_not_be_closed_at_once_is_closed_later(monkeypatch):
    async with machines() as here:
        here.puppet.nodes = 2
        await eventually(here.serves("m0", "m1"))
        adaptive, failures = here.cluster._adaptive, iter([True])
        retire = adaptive._retire

        async def fail_once(leaving):
            if next(failures, False):
                raise OSError("the network is down")
            await retire(leaving)

        monkeypatch.setattr(adaptive, "_retire", fail_once)
        here.puppet.nodes, here.puppet.retire = 1, ("m1",)
        await eventually(lambda: here.names == ["0-0", "0-1"])
        assert here.told("machine leaves") == [("machine leaves", "m1")]


@gen_test(timeout=300)
async def test_given_machines_are_had_again():
    """A cluster of fixed hosts, as over SSH: it cannot make new entries."""
    entry = {
        "cls": EnginesTogether, "options": {"config": LIMITED, "make": FakeEngine},
        "group": ["-0", "-1"],
    }  # fmt: skip
    async with machines(worker=None, workers={0: entry, 1: entry}) as here:
        await eventually(here.serves("m0", "m1"))
        here.puppet.nodes, here.puppet.retire = 1, ("m1",)
        await eventually(lambda: here.names == ["0-0", "0-1"])
        here.puppet.nodes, here.puppet.retire = 2, ()
        await eventually(here.serves("m0", "m1"))


@gen_test(timeout=300)
async def test_a_look_that_is_under_way_at_the_close_asks_for_nothing_more(monkeypatch):
    async with machines() as here:
        await eventually(here.serves("m0"))
        adaptive = here.cluster._adaptive

        async def all_granted(machines):
            return machines

        async def retire(leaving):
            await here.cluster.close()

        monkeypatch.setattr(adaptive, "_granted", all_granted)
        monkeypatch.setattr(adaptive, "_retire", retire)
        await adaptive.scale_down([0])
        await adaptive.scale_up(2)
        assert not here.cluster.worker_spec


@gen_test(timeout=300)
async def test_a_start_that_is_cut_by_the_close_is_no_news(caplog):
    cut = asyncio.Event()

    class Cut(EnginesTogether):
        async def start(self) -> None:
            await cut.wait()
            raise RuntimeError("cut")

    async with machines(
        worker={"cls": Cut, "options": {"config": LIMITED, "make": FakeEngine}}
    ) as here:
        await eventually(lambda: here.cluster.worker_spec)
        closing = asyncio.ensure_future(here.cluster.close())
        await eventually(lambda: here.cluster.status is Status.closing)
        cut.set()
        await closing
    assert "Could not start" not in caplog.text
