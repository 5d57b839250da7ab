"""Nothing listens beyond this machine unless somebody says so, and then it is said loudly."""

from __future__ import annotations

import logging

import pytest
from distributed import Scheduler
from distributed.utils_test import gen_test

from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.launch.exposure import is_exposed, kept_local, warn_if_exposed


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("inproc://127.0.0.1/1/1", False),
        ("tls://0.0.0.0:8786", False),
        ("tcp://0.0.0.0:8786", True),
        ("tcp://:8786", True),
        ("tcp://gpu-1.cluster:8786", True),
        ("tcp://10.0.0.5:8786", True),
    ],
)
def test_what_is_open_to_others(address: str, exposed: bool) -> None:
    assert is_exposed(address) is exposed


def test_a_warning_names_the_addresses(caplog: pytest.LogCaptureFixture) -> None:
    assert not warn_if_exposed("The cluster", ["tcp://127.0.0.1:1", "tls://10.0.0.5:1"])
    assert not caplog.records
    assert warn_if_exposed("The cluster", ["tcp://127.0.0.1:1", "tcp://0.0.0.0:8786"])
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "listens on tcp://0.0.0.0:8786 without TLS" in record.getMessage()


def test_an_interface_that_was_named_is_left() -> None:
    for name in ("host", "interface", "contact_address", "listen_address"):
        assert kept_local("tcp://127.0.0.1:8786", {name: "x"}) == {name: "x"}
    kept = kept_local("tcp://localhost:8786", {"dashboard_address": "10.0.0.5:8787"})
    assert kept == {"host": "localhost", "dashboard_address": "10.0.0.5:8787"}


@pytest.mark.cluster
@gen_test(timeout=90)
async def test_a_scheduler_that_is_open_to_all_is_warned_of(caplog):
    for host, said in (("127.0.0.1", False), ("0.0.0.0", True)):
        caplog.clear()
        async with Scheduler(host=host, port=0, dashboard_address="127.0.0.1:0") as scheduler:
            await ensure_control(f"tcp://127.0.0.1:{scheduler.port}")
        assert ("may run any code" in caplog.text) is said
