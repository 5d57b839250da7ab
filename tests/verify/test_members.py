"""Real processes: their errors and their deaths are told, and none outlives its context."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from elastic_dit.engine.group_store import GroupStore
from elastic_dit.engine.protocol import ModelSource
from elastic_dit.errors import ClusterError, UnsupportedModel
from elastic_dit.verify.jobs import Load, MemberSettings
from elastic_dit.verify.members import Members

LIMIT_S = 60.0
LARGER_THAN_A_PIPE = 1 << 24


@pytest.mark.cluster
def test_errors_and_deaths_are_told() -> None:
    store = GroupStore()
    settings = MemberSettings(
        gpu=3, source=ModelSource(name="model", path="/nowhere"), device="cpu:0",
        backend="gloo", store=store.address, limit_s=LIMIT_S,
    )  # fmt: skip
    with Members([settings]) as members:  # spawned, as for GPUs: only "cpu" itself is forked for
        (process,) = members._processes.values()
        with pytest.raises(UnsupportedModel, match="/nowhere: no such folder"):
            members.ask({3: [Load()]}, LIMIT_S)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ClusterError, match="no answer in time from the processes of GPU 3"):
            members.ask({3: [Load()]}, 0.2)
        with pytest.raises(ClusterError, match="the process of GPU 3 has stopped reading"):
            members.ask({3: [bytes(LARGER_THAN_A_PIPE)]}, 0.2)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match="the process of GPU 3 ended"):
            members.ask({3: [Load()]}, LIMIT_S)
    assert not psutil.pid_exists(process.pid)
    store.close()
