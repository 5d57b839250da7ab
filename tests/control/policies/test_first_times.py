"""A policy acts upon step times as soon as they are known, not only once something else happens."""

from __future__ import annotations

from itertools import pairwise

import pytest

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.progress import ObservedTimes
from elastic_dit.control.times import ExpectedTimes
from elastic_dit.cost import read_stage_latencies
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.ddit_grid import Cell

from ..bench import Bench, only


def bench(gpus: int) -> Bench:
    """GPUs that hold all stages, under `elastic`, with nothing known of any times."""
    made, observed = Bench(), ObservedTimes()
    made.controller = Controller(
        ControlConfig(dispatch="elastic"), times=ExpectedTimes(observed), observed=observed
    )
    made.join(*range(gpus))
    return made


def test_a_run_is_promoted_with_its_first_known_step_while_gpus_idle() -> None:
    made = bench(4)
    made.submit("a", num_inference_steps=12)
    made.done("a")
    assert made.gpus["a"] == (0,)
    assert made.step("a", 1) == []  # carries the pull of its inputs: no measure of a step
    assert only(made.step("a", 2), events.Resize).gpus == (0, 1)
    assert only(made.step("a", 3), events.Resize).gpus == (0, 1, 2, 3)


def test_what_is_known_already_is_no_news() -> None:
    made = bench(1)
    made.submit("a", num_inference_steps=12)
    made.done("a")
    versions = []
    for step in (1, 2, 3):
        made.step("a", step)
        versions.append(made.controller.view.version)
    assert versions[0] != versions[1] == versions[2]


@pytest.mark.parametrize(("rate", "gpus", "ratio"), [(1.0, 2, (5, 3, 2)), (0.2, 1, (1, 1, 1))])
def test_an_encoded_request_is_not_left_behind_when_times_of_others_become_known(
    rate: float, gpus: int, ratio: tuple[int, int, int]
) -> None:
    # With any figure for what was never seen, 360p requests ranked first until they were
    # encoded, and behind all others from then on: for 84 and 38 s.
    observed = ObservedTimes()
    controller = Controller(
        ControlConfig(dispatch="elastic"), times=ExpectedTimes(observed), observed=observed
    )
    cluster = VirtualCluster(controller, read_stage_latencies())
    cluster.add_node("n0", gpus=gpus, models=["opensora-1.2"])
    cluster.submit(Cell(ratio, rate).arrivals(seed=1, count=40))
    waits_s = [
        denoise.started_at - encode.started_at - encode.seconds
        for request in cluster.run().requests
        for encode, denoise in pairwise(request.records)
        if (encode.stage, denoise.stage) == (Stage.ENCODER, Stage.DIT)
    ]
    assert len(waits_s) == 40
    assert max(waits_s) < 10.0
