"""Closed loops and blocked senders in the simulator."""

from __future__ import annotations

import pytest

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.simulate.closed_loop import ClosedLoop
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.workload import RequestClass
from tests.control.bench import MODEL
from tests.simulate.test_cluster import RoundTimes

KIND = RequestClass(
    label="x",
    share=1.0,
    options={
        "model": MODEL, "width": 64, "height": 64, "num_frames": 9, "fps": 8,
        "num_inference_steps": 4, "guidance_scale": 4.0,
    },
)  # fmt: skip


def cluster(gpus: int, **overheads: object) -> VirtualCluster:
    virtual = VirtualCluster(
        Controller(ControlConfig()),
        RoundTimes(),
        overheads=Overheads(**overheads),  # type: ignore[arg-type]
    )
    virtual.add_node("n0", gpus=gpus, models=[MODEL])
    return virtual


def test_each_user_asks_again_when_served_and_none_after_the_end() -> None:
    virtual = cluster(2)
    loop = ClosedLoop(virtual, users=2, kind_at=lambda _: KIND, until_s=100.0)
    result = virtual.run()
    # 35 s for each request, two at a time; the last begin before 100 s.
    assert [outcome.ended_at for outcome in result.requests] == [35.0] * 2 + [70.0] * 2 + [
        105.0
    ] * 2
    assert repr(loop) == "<ClosedLoop, 6 requests so far>"


def test_the_first_requests_come_evenly() -> None:
    virtual = cluster(4)
    ClosedLoop(virtual, users=4, kind_at=lambda _: KIND, until_s=30.0, ramp_s=20.0)
    result = virtual.run()
    assert [outcome.arrived_at for outcome in result.requests] == [0.0, 5.0, 10.0, 15.0]


def test_a_blocked_sender_keeps_its_gpu_until_its_output_has_arrived() -> None:
    ends = {}
    for synchronous in (False, True):
        virtual = cluster(1, latency_s=3.0, synchronous=synchronous)
        ClosedLoop(virtual, users=1, kind_at=lambda _: KIND, until_s=1.0)
        ends[synchronous] = virtual.run().requests[0].ended_at
    # On one GPU nothing has to travel unless the sender insists on waiting for it, twice.
    assert ends == {False: 35.0, True: 41.0}


def test_stages_may_take_different_times_to_load() -> None:
    overheads = Overheads(load_s=3.0, stage_load_s={Stage.DIT: 7.0})
    assert [overheads.stage_load(stage) for stage in Stage] == [3.0, 7.0, 3.0]
    with pytest.raises(ConfigError, match=r"overheads.stage_load_s.dit = -1.0"):
        Overheads(stage_load_s={Stage.DIT: -1.0})
    with pytest.raises(ConfigError, match=r"overheads.messages = 0"):
        Overheads(messages=0)
