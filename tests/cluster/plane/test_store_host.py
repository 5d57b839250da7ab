"""The store of groups beside the control plane: there in time, there again, gone in the end."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.engine.group_store import connect
from tests.cluster.conditions import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START_S = 90.0


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
