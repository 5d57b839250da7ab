"""Placement in real processes: machines that come and go, a planner that dies in mid-thought."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elastic_dit
from elastic_dit.cluster.launch.fork_server import LIGHT_PRELOAD, fork_server
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.engine.fake import fake_frames
from elastic_dit.state import PlacementPlan
from tests.cluster import hesitant, processes
from tests.cluster.processes import children
from tests.cluster.puppet import register_puppet

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]


def until(condition: Callable[[], Any]) -> Any:
    """As `processes.until`: seldom, as each look is a call to the cluster."""
    return processes.until(condition, wait_s=120.0, every_s=0.2)


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """One fork server for all clusters of this module, and none after it."""
    before = children()
    with fork_server(LIGHT_PRELOAD):
        yield
    until(lambda: len(children() - before) <= 1)  # the resource tracker stays with the process


def settings(**placement: Any) -> Config:
    return Config.parse(
        {
            "engine": {"backend": "fake"},
            "control": {"tick_s": 0.1},
            "placement": {"interval_s": 0.4, **placement},
        }
    )


def local(config: Config, folder: Path, **options: Any) -> LocalElasticCluster:
    return LocalElasticCluster(
        virtual_gpus=2,
        config=config,
        dashboard_address=None,
        preload=["tests.cluster.hesitant"],
        env={hesitant.FOLDER: str(folder)},
        **options,
    )


def serving(client: elastic_dit.Client, *gpus: int) -> dict[str, Any] | None:
    """The status, once exactly these GPUs hold all stages."""
    status: dict[str, Any] = client.status()
    there = {gpu["gpu"] for gpu in status["gpus"] if len(gpu["resident"]) == 3}
    return status if there == set(gpus) == {gpu["gpu"] for gpu in status["gpus"]} else None


def check(futures: list[Any]) -> None:
    """All are there, right, and were made once."""
    for future in futures:
        result = future.result(timeout=60)
        assert future.progress().attempt == 1
        assert np.array_equal(result.frames, fake_frames(result.request))


def test_a_second_machine_of_engines_joins_and_leaves(tmp_path: Path) -> None:
    puppet = register_puppet()
    config = settings(policy="puppet", max_machines=2)
    with (
        local(config, tmp_path, control_worker=False) as cluster,
        elastic_dit.Client(cluster, config=config) as client,
    ):
        until(lambda: serving(client, 0, 1))
        puppet.nodes = 2
        until(lambda: serving(client, 0, 1, 8, 9))
        futures = client.map([f"a circle {n}" for n in range(8)], num_inference_steps=20)
        until(lambda: any(gpu["request_id"] for gpu in client.status()["gpus"] if gpu["gpu"] > 1))
        puppet.nodes, puppet.retire, puppet.reason = 1, ("local-m2",), "it is quiet"
        status = until(lambda: serving(client, 0, 1))
        check(futures)
        told = [(m["what"], m["subject"], m["reason"]) for m in status["moves"]]
        assert ("ask machines", "2 in all", "as the test says") in told
        assert ("release machine", "local-m2", "it is quiet") in told
        assert ("machine leaves", "local-m2", "it is quiet") in told
        lost = [one for one in told if one[0] == "lost"]
        assert sorted(lost) == [
            ("lost", f"local-m2-{n}", "local-m2 was given back") for n in (0, 1)
        ]
        assert [one["machine"] for one in status["machines"]] == ["local"]
        assert not any(name.startswith("local-m2") for name in map(str, cluster.worker_spec))


def test_a_planner_that_dies_in_mid_thought_is_replaced_and_nobody_notices(tmp_path: Path) -> None:
    config = settings(policy="hesitant")
    with local(config, tmp_path) as cluster, elastic_dit.Client(cluster, config=config) as client:
        before = until(lambda: (found := serving(client, 0, 1)) and found["planner"] and found)
        (tmp_path / "hesitate").touch()
        pid = int(until(lambda: (tmp_path / "thinking").exists() and _read(tmp_path / "thinking")))
        assert pid != os.getpid()
        futures = client.map([f"a circle {n}" for n in range(4)], num_inference_steps=30)
        until(lambda: sum(bool(gpu["request_id"]) for gpu in client.status()["gpus"]) == 2)

        os.kill(pid, signal.SIGKILL)
        (tmp_path / "hesitate").unlink()
        after = until(lambda: (found := client.status())["planner"] not in ("", before["planner"])
                      and found)  # fmt: skip
        assert after["plan"]["epoch"] == before["plan"]["epoch"]
        check(futures)

        other = PlacementPlan(epoch=after["plan"]["epoch"] + 1, residency={0: frozenset()})
        publish = client.dask.scheduler.elastic_dit_publish_plan
        assert client.dask.sync(publish, plan=other.to_wire())["accepted"]
        status = until(lambda: (found := serving(client, 0, 1)) and "thought in"
                       in found["plan"]["reason"] and found)  # fmt: skip
        thinker = int(status["plan"]["reason"].removeprefix("thought in "))
        assert thinker not in (pid, os.getpid())


def _read(path: Path) -> str:
    return path.read_text()
