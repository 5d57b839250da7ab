"""What a fixed split reaches: whole simulations, and an exhaustive search among them."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.cost import Shaped
from elastic_dit.predict.examples import TIE, Outcome, Situation
from elastic_dit.predict.features import bound_hz
from elastic_dit.predict.split import Split, balanced_split, neighbours
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.request import Stage, StageKey
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.outcome import SimulationResult
from elastic_dit.simulate.workload import RequestClass, poisson
from elastic_dit.state import GpuId, PlacementPlan

__all__ = ["SplitSearch", "measure_split", "search_splits"]

_MODEL = "model"
_SETTLED = (0.2, 0.8)
"""Parts of its work between which a stage is watched: it neither fills nor drains then."""
_FOREVER_S = 1e9
"""Between ticks: nothing here waits for one."""
_CROWDED = 2.0
"""Arrivals over what a split can serve, for its entry queue never to be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSearch:
    """How to measure.

    Attributes
    ----------
    requests : int
        Per run.
    seeds : tuple of int
        Every split is measured on the same arrivals.
    moves : int
        Splits are tried that differ from the closed form's in so many GPUs; as many as there are
        GPUs means all of them.
    worth : float
        Of those, the ones whose bound is so large a part of the best throughput found: by default
        what can still be as good as the best; less leaves more to learn from.
    """

    requests: int = 240
    seeds: tuple[int, ...] = (0, 1)
    moves: int = 64
    worth: float = 1.0 - TIE


class _MixCost:
    """A cost model of a mix: a request's width is the number of its part, from 1."""

    def __init__(self, workload: Workload) -> None:
        self._mix = _parts(workload)
        self._speeds = workload.speeds

    def stage_seconds(
        self,
        request: Shaped,
        stage: Stage,
        dop: int = 1,
        kind: str | None = None,
    ) -> float:
        del dop  # no group ever forms
        return self._mix[request.width - 1].seconds[stage] / self._speeds.get(kind or "", 1.0)

    def step_seconds(self, request: Shaped, dop: int, kind: str | None = None) -> float:
        return self.stage_seconds(request, Stage.DIT, dop, kind)

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:  # noqa: ARG002
        return (1,)


def measure_split(situation: Situation, split: Split, search: SplitSearch | None = None) -> Outcome:
    """Simulate a split under first-come-first-served at DoP 1, each GPU with one stage.

    A request's denoising is one long step here: without groups nothing happens between steps.
    Throughput is measured with the entry queue never empty, and is no more than the workload's
    rate; latency with random arrivals at that rate, or as they are for throughput where it is not
    known.

    Parameters
    ----------
    situation : Situation
    split : Split
    search : SplitSearch, optional
        Its `requests` and `seeds`.
    """
    how = search or SplitSearch()
    workload = situation.workload
    crowded_hz = _CROWDED * min(split.rates_hz(workload).values())
    full = [_run(workload, split, crowded_hz, how.requests, seed) for seed in how.seeds]
    usual = full
    if workload.rate_hz:
        usual = [_run(workload, split, workload.rate_hz, how.requests, seed) for seed in how.seeds]
    served_hz = statistics.fmean(_served_hz(workload, split, run) for run in full)
    return Outcome(
        throughput_hz=min(served_hz, workload.rate_hz or math.inf),
        latency_s=statistics.fmean(statistics.fmean(run.latencies_s()) for run in usual),
    )


def search_splits(situation: Situation, search: SplitSearch | None = None) -> dict[Split, Outcome]:
    """Measure splits in order of their bound, until none that is left can be worth it.

    The closed form's comes first, as it has the highest bound.
    """
    how = search or SplitSearch()
    workload = situation.workload
    closed = balanced_split(workload, situation.gpus)
    splits = sorted(
        neighbours(closed, workload, how.moves), key=lambda split: -bound_hz(workload, split)
    )
    found = {closed: measure_split(situation, closed, how)}
    for split in splits:
        best = max(each.throughput_hz for each in found.values())
        if bound_hz(workload, split) < how.worth * best:
            break
        if split not in found:
            found[split] = measure_split(situation, split, how)
    return found


def _run(
    workload: Workload, split: Split, rate_hz: float, requests: int, seed: int
) -> SimulationResult:
    cluster = _cluster(workload, split)
    classes = [_request_class(index, part) for index, part in enumerate(_parts(workload), start=1)]
    cluster.submit(poisson(classes, rate_per_s=rate_hz, count=requests, seed=seed))
    return cluster.run()


def _served_hz(workload: Workload, split: Split, result: SimulationResult) -> float:
    """Throughput while the pipeline is full.

    Every stage passes on what the one before gives it, so the throughput is a stage's service rate
    times how busy its GPUs are, whichever stage; the busiest, the bottleneck, says it with the
    least noise: requests that are short by chance keep it as busy as others.
    """
    rates = split.rates_hz(workload)
    busy = max(_worked(stage, workload, result) / rate for stage, rate in rates.items())
    return min(rates.values()) * min(1.0, busy)


def _worked(stage: Stage, workload: Workload, result: SimulationResult) -> float:
    """Mean requests' worth of a stage done per second, in the middle part of its work."""
    spans = sorted((span for span in result.spans if span.what == stage), key=lambda span: span.end)
    start, end = (spans[int(part * (len(spans) - 1))].end for part in _SETTLED)
    if not end > start:
        return 0.0
    speeds = {gpu: workload.speeds.get(node, 1.0) for gpu, node in result.nodes.items()}
    done_s = sum(
        max(0.0, min(span.end, end) - max(span.start, start)) * speeds[span.gpu] for span in spans
    )
    return done_s / (end - start) / workload.stage_seconds[stage]


def _cluster(workload: Workload, split: Split) -> VirtualCluster:
    """GPUs of each kind as one machine, each with its one stage from the start."""
    size = sum(len(kinds) for kinds in split.kinds)
    config = ControlConfig(
        dispatch="fcfs", tick_s=_FOREVER_S, load_grace_s=_FOREVER_S, slots_per_node=size
    )
    cluster = VirtualCluster(Controller(config), _MixCost(workload))
    residency: dict[GpuId, frozenset[StageKey]] = {}
    for node, kind in enumerate(sorted({kind for kinds in split.kinds for kind in kinds})):
        stages = [
            stage
            for stage, kinds in zip(Stage, split.kinds, strict=True)
            for each in kinds
            if each == kind
        ]
        cluster.add_node(kind, gpus=len(stages), kind=kind)
        residency |= {
            node * size + index: frozenset({StageKey(_MODEL, stage)})
            for index, stage in enumerate(stages)
        }
    plan = PlacementPlan(epoch=1, residency=residency, reason=str(split))
    cluster.at(0.0, cluster.tell, events.PlanPublished(plan=plan))
    return cluster


def _parts(workload: Workload) -> tuple[MixPart, ...]:
    return workload.mix or (MixPart(share=1, seconds=workload.stage_seconds),)


def _request_class(number: int, part: MixPart) -> RequestClass:
    options = {
        "model": _MODEL,
        "width": number,
        "height": 1,
        "num_frames": 1,
        "fps": 1,
        "num_inference_steps": 1,
        "guidance_scale": 1.0,
    }
    return RequestClass(label=str(number), share=part.share, options=options)
