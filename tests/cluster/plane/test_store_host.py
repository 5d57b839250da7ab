"""The store of groups beside the control plane: there in time, there again, gone in the end."""

from __future__ import annotations

import asyncio
import os
import signal

import psutil
import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane import store_host
from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.engine.group_store import connect
from tests.cluster.conditions import eventually

START_S = 90.0


class Dying(StoreHost):
    """Its processes end as soon as they have begun."""

    lives = 0

    async def _serve_once(self) -> None:
        self.lives += 1
        if self.lives == 20:
            raise asyncio.CancelledError


@pytest.mark.parametrize(("long_life_s", "lives"), [(600.0, 3), (0.0, 20)])
@gen_test(timeout=30)
async def test_only_a_store_that_keeps_dying_is_given_up(monkeypatch, long_life_s, lives) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(store_host, "_LONG_LIFE_S", long_life_s)
    host = Dying("127.0.0.1", [].append)
    host.open()
    await eventually(lambda: host.lives == lives)
    await host.close()
    assert host.lives == lives


@pytest.mark.cluster
@pytest.mark.slow
@gen_test(timeout=200)
async def test_it_comes_back_under_another_address_and_goes_when_closed() -> None:
    told: list[str] = []
    host = StoreHost("127.0.0.1", told.append)
    host.open()
    host.open()
    await eventually(lambda: host.address, START_S)
    [first] = told
    [process] = [p for p in psutil.Process().children() if "store_process" in " ".join(p.cmdline())]
    store = connect(host.address)
    for key in ("run/r1/1/5/record", "run/r2/1/6/record"):
        store.set(key, "1")
    host.forget("r1")
    await eventually(lambda: not store.check(["run/r1/1/5/record"]))
    assert store.check(["run/r2/1/6/record"])
    os.kill(process.pid, signal.SIGKILL)
    await eventually(lambda: len(told) == 3, START_S)
    assert told[1] == ""
    assert told[2] == host.address != first
    [process] = [p for p in psutil.Process().children() if "store_process" in " ".join(p.cmdline())]
    await host.close()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert host.address == ""
