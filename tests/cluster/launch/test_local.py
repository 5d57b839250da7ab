"""Whole local clusters in real processes, with pretended engines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, Security

from elastic_dit.cluster.launch import processes
from elastic_dit.cluster.launch.fork_server import LIGHT_PRELOAD, fork_server
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.errors import ClusterError, ConfigError
from tests.cluster.processes import alive_in_session, children, until

pytestmark = pytest.mark.cluster

FAKE = Config.parse({"engine": {"backend": "fake"}})
QUIET: dict[str, Any] = {"config": FAKE, "dashboard_address": None}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """One fork server for all clusters of this module, and none after it."""
    before = children()
    with fork_server(LIGHT_PRELOAD):
        yield
    until(lambda: len(children() - before) <= 1)  # the resource tracker stays with the process


def _engine(dask_worker: Any) -> Any:
    plugin = dask_worker.plugins.get("elastic-dit-engine")
    if plugin is None:
        return None
    return {
        "name": dask_worker.name,
        "pid": os.getpid(),
        "instance": plugin._instance,
        "gpu": plugin.runner.host.gpu,
        "sigint": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }


def engines(client: Client) -> dict[str, dict[str, Any]]:
    """Welcomed engines by worker name."""
    told = client.run(_engine, on_error="ignore").values()
    return {e["name"]: e for e in told if e is not None and e["gpu"] is not None}


def test_engines_come_back_scale_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(processes, "stop_fork_server", lambda: stopped.append("amid the close"))
    before = children()
    with LocalElasticCluster(virtual_gpus=2, **QUIET) as cluster, Client(cluster) as client:
        first = until(lambda: len(found := engines(client)) == 2 and found)
        assert sorted(first) == ["local-0", "local-1"]
        assert sorted(e["gpu"] for e in first.values()) == [0, 1]
        assert all(e["sigint"] for e in first.values())
        assert cluster.gpus == 2

        os.kill(first["local-0"]["pid"], signal.SIGKILL)
        again = until(
            lambda: (
                (found := engines(client)).get("local-0", first["local-0"])["instance"]
                != first["local-0"]["instance"]
                and found
            )
        )
        assert again["local-0"]["gpu"] == first["local-0"]["gpu"]
        assert again["local-1"] == first["local-1"]

        cluster.scale(3)
        until(lambda: sorted(engines(client)) == ["local-0", "local-1", "local-2"])
        cluster.scale(1)
        until(lambda: sorted(engines(client)) == ["local-0"])
        assert cluster.gpus == 1
        names = {w["name"] for w in client.scheduler_info(n_workers=-1)["workers"].values()}
        assert names == {"local-0", "local-control"}
        until(lambda: set(cluster.workers) == names)
    # Who scaled down has left; what runs yet ends in good order, and needs the server for that.
    assert stopped == []
    until(lambda: len(children()) <= len(before))


def test_for_use_in_an_event_loop() -> None:
    async def check() -> None:
        async with (
            LocalElasticCluster(
                virtual_gpus=1, asynchronous=True, control_worker=False, **QUIET
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            told = await client.run(_engine)
            assert [engine["name"] for engine in told.values()] == ["local-0"]

    before = children()
    asyncio.run(check())
    until(lambda: len(children()) <= len(before))


def test_over_tls() -> None:
    security = Security.temporary()
    with (
        LocalElasticCluster(
            virtual_gpus=1, security=security, control_worker=False, **QUIET
        ) as cluster,
        Client(cluster, security=security) as client,
    ):
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        until(lambda: engines(client))
        with pytest.raises(TypeError, match="TLS expects"):
            Client(cluster.scheduler_address, timeout=2)


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    with pytest.raises(ClusterError, match=r"local did not start: .*no_such_module"):
        LocalElasticCluster(
            virtual_gpus=1, control_worker=False, preload=["no_such_module"], **QUIET
        )
    until(lambda: len(children()) <= len(before))
    assert dask.config.get("distributed.deploy.lost-worker-timeout") == "15s"


def test_no_gpu_is_an_error_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(ConfigError, match="devices"):
        LocalElasticCluster()
    assert {process.pid for process in psutil.Process().children(recursive=True)} == before


SCRIPT = """
import sys
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config

if __name__ == "__main__":
    settings = {"engine": {"backend": "fake", "preload": sys.argv[1] == "true"}}
    try:
        with LocalElasticCluster(
            virtual_gpus=2, config=Config.parse(settings), dashboard_address=None
        ) as cluster:
            print("up", flush=True)
            sys.stdin.read()
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("preload", ["true", "false"])
@pytest.mark.parametrize("moment", ["amid the start", "when up"])
def test_ctrl_c_leaves_nothing(tmp_path: Path, preload: str, moment: str) -> None:
    script, log = tmp_path / "script.py", tmp_path / "log.txt"
    script.write_text(SCRIPT)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), preload],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with process:
        try:
            if moment == "when up":
                until(lambda: "up" in log.read_text())
            else:
                # Python, the resource tracker, and the first of those that become workers.
                until(lambda: len(alive_in_session(process.pid)) >= 3)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(30) == 130
            until(lambda: not alive_in_session(process.pid), wait_s=10.0)
            assert "Traceback" not in log.read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
