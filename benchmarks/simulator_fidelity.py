"""Does the simulator say what the real cluster does? See README.md beside this.

python benchmarks/simulator_fidelity.py --json simulator_fidelity.json
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
from pydantic import BaseModel, ConfigDict
from rich.console import Console

from elastic_dit import __version__
from elastic_dit.cli.local_serving import serving
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.profile_measure import Degrees, Profiler
from elastic_dit.client import Client
from elastic_dit.config import Config
from elastic_dit.control import Controller, make_dispatch
from elastic_dit.control.times import ExpectedTimes
from elastic_dit.request import Stage
from elastic_dit.rib import Latency, LatencyBook, Observations, RibCost, RibTimes
from elastic_dit.rib.store import RibStore
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.workload import Arrival, RequestClass, poisson

POLICIES = ("fcfs", "srtf-1", "static-2", "elastic")
LIMIT_S = 900.0
"""Longest replay of one policy, seconds."""
_READY_S = 600.0
"""Longest start of a cluster, seconds."""
_MIX = {"short": (48, 9, 12, 3), "medium": (64, 17, 20, 2), "long": (96, 17, 30, 1)}
"""Side in pixels, frames, steps, and share of the mix."""
_GUIDANCE_SCALE = 4.0
_PROFILE_STEPS = 18
"""Of a long run of the profile."""
_PROGRESS_S = 0.001
"""Less than any step takes."""
_OVERHEAD_RUNS = 4
"""Requests per engine that the overhead between stages is measured over."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class PolicyReport(_Report):
    """One policy, both ways."""

    policy: str
    """Dispatch policy."""
    real_mean_seconds: float
    """Mean over the requests, from acceptance to the result's being there, by the control plane's
    clock."""
    simulated_mean_seconds: float
    """The same in the simulator."""
    error: float
    """Simulated over real mean, less 1: 0.05 says that the simulator is 5 % above."""
    work_error: float
    """GPU-seconds of stages, simulated over real, less 1: not near 0 where the machine was not as
    fast during the replay as during the profile. Then the replay says nothing; run it again."""
    real_seconds: tuple[float, ...]
    """Every request's latency, in order of arrival."""
    simulated_seconds: tuple[float, ...]
    """The same in the simulator."""


class FidelityReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    cpus: int
    """CPU cores this process may use."""
    gpus: int
    """Virtual GPUs."""
    requests: int
    """Requests of the trace."""
    load: float
    """Work that arrives, over what the GPUs can do."""
    mean_latency_error: float
    """Of the policy whose mean is furthest off: simulated over real, less 1."""
    same_order: bool
    """Whether both put the policies in the same order by mean latency."""
    overhead_seconds: float
    """What the control plane sees a stage take beyond what its engine computes, measured before
    the replays and part of what is simulated."""
    join_seconds: float
    """What a group of two takes to meet beyond what one alone needs to begin, likewise: charged
    whenever GPUs join a request, or its tensors move to another GPU."""
    profile_seconds: dict[str, float]
    """Measured step times by class and degree, all GPUs at work."""
    policies: tuple[PolicyReport, ...]
    """In the order in which they ran."""


class Run(NamedTuple):
    """One replay: latency of each request in order of arrival, and GPU-seconds of all stages."""

    latencies_s: list[float]
    work_gpu_s: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Options of the command."""

    gpus: int
    requests: int
    load: float
    repeats: int
    fake: bool

    def config(self, policy: str, path: str | None) -> Config:
        """Settings of the cluster: every GPU holds all stages."""
        return Config.parse(
            {
                "engine": {"backend": "fake" if self.fake else "torch"},
                "placement": {"policy": "colocated"},
                "control": {
                    "dispatch": policy,
                    "profile": path,
                    "prefetch_depth": 0,
                    # As where steps take seconds: policies hear of every one.
                    "progress_interval_s": _PROGRESS_S,
                },
                "client": {"ready_timeout_s": _READY_S},
            }
        )


def measure(plan: Plan, policies: Sequence[str], console: Console) -> FidelityReport:
    """Profile, then replay one trace for each policy on the real cluster and on the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rib.sqlite")
        profile, trace = _profile(plan, path, console)
        rows = []
        for policy in policies:
            own = shutil.copy(path, f"{path}.{policy}")  # the cluster refines what it is given
            arrivals, real, beside = _replay(plan, policy, trace, own, console)
            rows.append(_row(policy, real, _simulate(plan, policy, arrivals, beside)))
            console.print(
                f"{policy}: {rows[-1].real_mean_seconds:.2f} s, {rows[-1].error:+.1%}; "
                f"work {rows[-1].work_error:+.1%}"
            )
    return FidelityReport(
        software=f"elastic-dit {__version__}",
        cpus=_cores(),
        gpus=plan.gpus,
        requests=plan.requests,
        load=plan.load,
        mean_latency_error=max((row.error for row in rows), key=abs),
        same_order=_order(rows, "real_mean_seconds") == _order(rows, "simulated_mean_seconds"),
        overhead_seconds=profile.overhead_s,
        join_seconds=profile.join_s,
        profile_seconds=profile.steps,
        policies=tuple(rows),
    )


class Profile:
    """What the simulator is told, measured before the replays under full load."""

    def __init__(self, book: LatencyBook, overhead_s: float) -> None:
        self.book = book
        self.overhead_s = overhead_s
        steps = [latency for latency in book if latency.key.stage is Stage.DIT]
        alone, pair = ([each.setup_s for each in steps if each.key.dop == dop] for dop in (1, 2))
        longer_s = statistics.median(pair) - statistics.median(alone) if pair else 0.0
        self.join_s = max(0.0, longer_s)
        self.steps = {
            f"{each.key.width}x{each.key.height}x{each.key.num_frames} at {each.key.dop}": (
                each.seconds
            )
            for each in steps
        }

    @property
    def cost(self) -> RibCost:
        """For the simulator."""
        return RibCost(self.book, self.overhead_s)


def _profile(plan: Plan, path: str, console: Console) -> tuple[Profile, tuple[Arrival, ...]]:
    store = RibStore(path)
    with serving(plan.gpus, plan.config("elastic", None), console) as client:
        classes = _classes(client)
        seen, degrees = _examine(client, plan, console)
        store.save(seen, degrees.software)
        overhead_s = _overhead_s(client, _profiler(client, plan), degrees)
    profile = Profile(LatencyBook(seen), overhead_s)
    work_s = sum(each.share * _gpu_s(profile.cost, each) for each in classes)
    mean_s = work_s / sum(each.share for each in classes)
    rate_per_s = plan.load * plan.gpus / mean_s
    return profile, poisson(classes, rate_per_s=rate_per_s, count=plan.requests, seed=0)


def _classes(client: Client) -> list[RequestClass]:
    model = client.models()[0].name
    return [_request_class(label, model) for label in _MIX]


def _profiler(client: Client, plan: Plan) -> Profiler:
    return Profiler(
        client=client, kind=client.status()["gpus"][0]["kind"], steps=_PROFILE_STEPS,
        repeats=plan.repeats, warm_up=1, load="full", limit_s=LIMIT_S,
    )  # fmt: skip


def _examine(client: Client, plan: Plan, console: Console) -> tuple[list[Latency], Degrees]:
    """Latencies of all classes at all degrees that this cluster's policy may use."""
    profiler = _profiler(client, plan)
    seen: list[Latency] = []
    for each in _classes(client):
        options = {name: value for name, value in each.options.items() if name != "fps"}
        degrees = profiler.examine({**options, "num_inference_steps": profiler.steps})
        for dop in degrees.dops:
            with console.status(f"Profiling {each.label} at degree {dop}"):
                seen += profiler.measure(degrees, dop)
    return seen, degrees


def _between(before: Sequence[Latency], after: Sequence[Latency]) -> list[Latency]:
    """Means of what was measured before and after: machines do not keep their speed."""
    later = {each.key: each for each in after}
    return [
        replace(
            each,
            seconds=statistics.mean((each.seconds, later[each.key].seconds)),
            setup_s=statistics.mean((each.setup_s, later[each.key].setup_s)),
        )
        for each in before
    ]


def _request_class(label: str, model: str) -> RequestClass:
    side, frames, steps, share = _MIX[label]
    options = {
        "model": model, "prompt": "a red circle moving left on a black background",
        "width": side, "height": side, "num_frames": frames, "fps": 8,
        "num_inference_steps": steps, "guidance_scale": _GUIDANCE_SCALE,
    }  # fmt: skip
    return RequestClass(label=label, share=share, options=options)


def _gpu_s(cost: RibCost, of: RequestClass) -> float:
    request = of.request("r", 0)
    return sum(cost.stage_seconds(request, stage) for stage in Stage)


def _overhead_s(client: Client, profiler: Profiler, degrees: Degrees) -> float:
    """Mean time that a stage holds its GPU beyond what its engine computes, all GPUs at work."""
    before_s = _busy_s(client)
    futures = profiler.submit(degrees, 1, [profiler.steps] * (_OVERHEAD_RUNS * degrees.gpus))
    results = [future.result(timeout=LIMIT_S) for future in futures]
    records = [record for result in results for record in result.records]
    computed_s = sum(record.seconds for record in records)
    return max(0.0, (_busy_s(client) - before_s - computed_s) / len(records))


def _busy_s(client: Client) -> float:
    return float(sum(gpu["busy_s"] for gpu in client.status()["gpus"]))


def _replay(
    plan: Plan, policy: str, trace: Sequence[Arrival], path: str, console: Console
) -> tuple[tuple[Arrival, ...], Run, Profile]:
    """The trace as the real cluster took it in, what came of it, and the profile beside it."""
    with serving(plan.gpus, plan.config(policy, path), console) as client:
        before, degrees = _examine(client, plan, console)
        overhead_s = _overhead_s(client, _profiler(client, plan), degrees)
        with console.status(f"Replaying {len(trace)} requests under {policy}"):
            futures = [client.submit(**_fields(arrival)) for arrival in _in_time(trace)]
            deadline_s = time.monotonic() + LIMIT_S
            results = [
                future.result(timeout=max(0.1, deadline_s - time.monotonic())) for future in futures
            ]
        known = {row["request_id"]: row for row in client.status()["requests"]}
        after, _ = _examine(client, plan, console)
    rows = [known[arrival.request.request_id] for arrival in trace]
    first_s = rows[0]["accepted_at"]
    arrivals = tuple(
        replace(arrival, at_s=max(0.0, row["accepted_at"] - first_s))
        for arrival, row in zip(trace, rows, strict=True)
    )
    latencies = [row["finished_at"] - row["accepted_at"] for row in rows]
    records = (record for result in results for record in result.records)
    run = Run(latencies, sum(each.seconds * len(each.gpus) for each in records))
    return arrivals, run, Profile(LatencyBook(_between(before, after)), overhead_s)


def _in_time(trace: Sequence[Arrival]) -> Iterator[Arrival]:
    began_s = time.monotonic()
    for arrival in trace:
        time.sleep(max(0.0, began_s + arrival.at_s - time.monotonic()))  # it is a replay
        yield arrival


def _fields(arrival: Arrival) -> dict[str, Any]:
    unknown = ("fps", "priority", "deadline_s")
    fields = arrival.request.model_dump(exclude_defaults=True)
    return {name: value for name, value in fields.items() if name not in unknown}


def _simulate(plan: Plan, policy: str, arrivals: Sequence[Arrival], profile: Profile) -> Run:
    """The same requests through the same controller and policy, on a virtual clock."""
    config = plan.config(policy, None).control
    observed = Observations()
    times = ExpectedTimes(observed, RibTimes(profile.book))
    controller = Controller(config, make_dispatch(policy), times=times, observed=observed)
    overheads = Overheads(latency_s=profile.join_s)
    cluster = VirtualCluster(controller, profile.cost, overheads=overheads)
    cluster.add_node("n0", gpus=plan.gpus, models=[arrivals[0].request.model])
    cluster.submit(arrivals)
    outcomes = cluster.run().requests
    latencies = [each.latency_s for each in outcomes if each.latency_s is not None]
    # The real records are of engines, which know nothing of the way between them.
    stages = sum(len(each.records) for each in outcomes)
    work_s = sum(each.gpu_s for each in outcomes) - stages * profile.overhead_s
    return Run(latencies, work_s)


def _row(policy: str, real: Run, simulated: Run) -> PolicyReport:
    real_s = statistics.mean(real.latencies_s)
    simulated_s = statistics.mean(simulated.latencies_s)
    return PolicyReport(
        policy=policy,
        real_mean_seconds=real_s,
        simulated_mean_seconds=simulated_s,
        error=simulated_s / real_s - 1.0,
        work_error=simulated.work_gpu_s / real.work_gpu_s - 1.0,
        real_seconds=tuple(real.latencies_s),
        simulated_seconds=tuple(simulated.latencies_s),
    )


def _order(rows: Sequence[PolicyReport], field: str) -> list[str]:
    return [row.policy for row in sorted(rows, key=lambda row: getattr(row, field))]


def _cores() -> int:
    """Virtual GPUs that do not take each other's time, as real ones do not."""
    return len(os.sched_getaffinity(0))


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--gpus", type=click.IntRange(1, 64), default=_cores, show_default="the CPU cores")
@click.option("--requests", type=click.IntRange(2), default=60, show_default=True)
@click.option("--load", type=click.FloatRange(0.1, 100.0), default=4.0, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=2, show_default=True)
@click.option("--fake", is_flag=True, help="To try the script without a model.")
@click.option("--policy", "policies", multiple=True, default=POLICIES, show_default=True)
def main(
    json_path: str | None,
    gpus: int,
    requests: int,
    load: float,
    repeats: int,
    fake: bool,
    policies: tuple[str, ...],
) -> None:
    """One trace on the real cluster and on the simulator, with the profile measured in between."""
    check_json_path(json_path)
    console = human_console(json_path)
    plan = Plan(gpus=gpus, requests=requests, load=load, repeats=repeats, fake=fake)
    report = measure(plan, policies, console)
    order = "the same" if report.same_order else "another"
    console.print(f"mean_latency_error {report.mean_latency_error:+.3f}, {order} order of policies")
    write_json(json_path, report.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
