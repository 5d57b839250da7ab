"""Small virtual clusters under the policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.policies import Elastic
from elastic_dit.cost import CostModel, CostTimes, read_stage_latencies
from elastic_dit.cost.readers import FIGURE_17_FRAMES, FIGURE_17_STEPS, RESOLUTIONS
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import RequestOutcome
from elastic_dit.simulate.workload import Arrival


def arrival(request_id: str, at_s: float, size: str = "360p", **fields: Any) -> Arrival:
    """A request of the DDiT paper."""
    width, height = RESOLUTIONS[size]
    request = GenerationRequest.parse(
        request_id=request_id, model="m", prompt="a circle", width=width, height=height,
        num_frames=FIGURE_17_FRAMES, fps=24, num_inference_steps=FIGURE_17_STEPS,
        guidance_scale=5.0, seed=0, **fields,
    )  # fmt: skip
    return Arrival(at_s=at_s, request=request, label=size)


def world(
    arrivals: Iterable[Arrival], gpus: int = 8, cost: CostModel | None = None
) -> VirtualCluster:
    """One node that holds everything."""
    cost = cost or read_stage_latencies()
    config = ControlConfig(decisions_kept=100_000)
    controller = Controller(config, Elastic(), times=CostTimes(cost))
    cluster = VirtualCluster(controller, cost)
    cluster.add_node("n0", gpus=gpus, models=["m"])
    cluster.submit(arrivals)
    return cluster


def denoising(outcome: RequestOutcome) -> list[tuple[int, ...]]:
    """The groups that denoised a request, in turn."""
    return [record.gpus for record in outcome.records if record.stage is Stage.DIT]
