"""Real processes: their errors and their deaths are told, and none outlives its context."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from elastic_dit.cluster.fork_server import LIGHT_PRELOAD, fork_server
from elastic_dit.engine.group_store import GroupStore
from elastic_dit.engine.protocol import ModelSource
from elastic_dit.errors import ClusterError, UnsupportedModel
from elastic_dit.verify.jobs import Load, MemberSettings
from elastic_dit.verify.members import Members

LIMIT_S = 60.0


@pytest.mark.cluster
def test_errors_and_deaths_are_told() -> None:
    store = GroupStore()
    settings = [
        MemberSettings(
            gpu=gpu, source=ModelSource(name="model", path="/nowhere"), device="cpu",
            backend="gloo", store=store.address, limit_s=LIMIT_S,
        )
        for gpu in (0, 1)
    ]  # fmt: skip
    with fork_server(LIGHT_PRELOAD):  # which is then that of the members too
        with Members(settings) as members:
            pids = [process.pid for process in members._processes.values()]
            with pytest.raises(UnsupportedModel, match="/nowhere: no such folder"):
                members.ask({0: [Load()]}, LIMIT_S)
            os.kill(pids[1], signal.SIGKILL)
            with pytest.raises(ClusterError, match="the process of GPU 1 ended"):
                members.ask({1: [Load()]}, LIMIT_S)
            os.kill(pids[0], signal.SIGSTOP)
            begun = time.monotonic()
            with pytest.raises(ClusterError, match="no answer in time from the processes of GPU 0"):
                members.ask({0: [Load()]}, 0.2)
            assert time.monotonic() - begun < LIMIT_S / 2
        assert not any(_alive(pid) for pid in pids)
    store.close()


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
