"""How long does the control plane take to decide? See README.md beside this.

python benchmarks/decision_time.py --json decision_time.json
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import time
from typing import Literal

import click
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__, events
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.cost import CostModel, CostTimes, read_stage_latencies
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.ddit_grid import MODEL, Cell
from elastic_dit.simulate.outcome import percentile

POLICIES = ("fcfs", "ddit", "elastic")
GPUS = (8, 64, 256, 1024)
WAITING = 10_000
EVENTS = 6_000
"""Events timed in each cluster, at least."""
_EVENTS_PER_GPU = 40
"""At least so many: more than the steps of a request, so that each GPU ends one."""
_PER_NODE = 8
_MIX = (1, 1, 1)
_WARM_UP_S = 5.0
"""Virtual seconds before events are timed: the cluster gets out of its first lockstep."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Times(_Report):
    """Time of one event, from handing it to the controller until its commands are there."""

    p50_ms: float
    """Median of all events; most of them only report a denoising step."""
    p99_ms: float
    """99th percentile of all events."""
    deciding_p50_ms: float
    """Median of the events that the policy is asked after."""
    deciding_p99_ms: float
    """Their 99th percentile."""
    wall_p99_ms: float
    """99th percentile of all events by the clock on the wall: the others are CPU time, which is the
    same where nothing else runs, since a decision waits for nothing."""


class PolicyTimes(_Report):
    """One policy."""

    by_gpus: dict[str, Times]
    """By number of GPUs."""
    growth: float
    """x where `deciding_p50_ms` grows as GPUs^x; below 1 is sub-linear."""


class Details(_Report):
    """What the JSON holds beside `Times` of the slowest policy for each number of GPUs."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    cpus: int
    """CPU cores this process may use."""
    waiting: int
    """Requests that wait while events are timed."""
    events: int
    """Events timed in each cluster, at least; 40 for each GPU where that is more."""
    policies: dict[str, PolicyTimes]
    """By name of the policy."""
    simulated_steps_per_s: dict[str, float]
    """Denoising steps that the simulator goes through per second of wall time, by policy: 100
    requests on 8 GPUs, everything included."""


class _Enough(Exception):
    """All events that were asked for have been timed."""


class TimedController(Controller):
    """Notes what its events take, once it has been told from when and how many."""

    def __init__(self, config: ControlConfig, times: CostTimes) -> None:
        super().__init__(config, times=times)
        self.from_s = math.inf
        self.left = 0
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self.deciding_s: list[float] = []

    def handle(self, event: events.Event, now: float) -> list[events.Command]:
        """As its base; times it."""
        if now < self.from_s:
            return super().handle(event, now)
        if self.left == 0:
            raise _Enough
        self.left -= 1
        wall, cpu = time.perf_counter(), time.thread_time()
        commands = super().handle(event, now)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        self.wall_s.append(wall)
        self.cpu_s.append(cpu)
        if not isinstance(event, events.StepDone):
            self.deciding_s.append(cpu)
        return commands

    def times(self) -> Times:
        """Percentiles of what was noted."""
        return Times(
            p50_ms=_ms(self.cpu_s, 50),
            p99_ms=_ms(self.cpu_s, 99),
            wall_p99_ms=_ms(self.wall_s, 99),
            deciding_p50_ms=_ms(self.deciding_s, 50),
            deciding_p99_ms=_ms(self.deciding_s, 99),
        )


def _ms(seconds: list[float], p: float) -> float:
    found = percentile(seconds, p)
    assert found is not None
    return 1000.0 * found


def time_events(policy: str, gpus: int, waiting: int, count: int, cost: CostModel) -> Times:
    """Fill a cluster and its queues, let it run, and time its events."""
    config = ControlConfig(dispatch=policy, max_waiting=waiting + gpus)
    controller = TimedController(config, CostTimes(cost))
    cluster = VirtualCluster(controller, cost)
    for node in range(max(1, gpus // _PER_NODE)):
        cluster.add_node(f"n{node}", gpus=min(gpus, _PER_NODE), models=[MODEL])
    cluster.submit(Cell(_MIX, None).arrivals(seed=0, count=waiting + gpus))
    cluster.run(until_s=_WARM_UP_S)
    controller.from_s, controller.left = 0.0, max(count, _EVENTS_PER_GPU * gpus)
    gc.collect()
    with contextlib.suppress(_Enough):
        cluster.run()
    return controller.times()


def measure_policy(policy: str, waiting: int, count: int, cost: CostModel) -> PolicyTimes:
    """All sizes."""
    found = {gpus: time_events(policy, gpus, waiting, count, cost) for gpus in GPUS}
    least, most = GPUS[0], GPUS[-1]
    grown = found[most].deciding_p50_ms / found[least].deciding_p50_ms
    return PolicyTimes(
        by_gpus={str(gpus): times for gpus, times in found.items()},
        growth=math.log(grown) / math.log(most / least),
    )


def simulated_steps_per_s(policy: str, cost: CostModel) -> float:
    """Speed of the simulator."""
    arrivals = Cell(_MIX, 1.0).arrivals(seed=0)
    controller = Controller(ControlConfig(dispatch=policy), times=CostTimes(cost))
    cluster = VirtualCluster(controller, cost)
    cluster.add_node("n0", gpus=_PER_NODE, models=[MODEL])
    cluster.submit(arrivals)
    began = time.perf_counter()
    cluster.run()
    steps = sum(arrival.request.num_inference_steps for arrival in arrivals)
    return steps / (time.perf_counter() - began)


def slowest(policies: dict[str, PolicyTimes], gpus: str) -> Times:
    """The worst of each figure."""
    all_times = [policy.by_gpus[gpus] for policy in policies.values()]
    worst = {name: max(getattr(times, name) for times in all_times) for name in Times.model_fields}
    return Times(**worst)


def measure(policies: tuple[str, ...], waiting: int, count: int) -> Details:
    """All policies."""
    cost = read_stage_latencies()
    return Details(
        software=f"elastic-dit {__version__}",
        cpus=len(os.sched_getaffinity(0)),
        waiting=waiting,
        events=count,
        policies={policy: measure_policy(policy, waiting, count, cost) for policy in policies},
        simulated_steps_per_s={policy: simulated_steps_per_s(policy, cost) for policy in policies},
    )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--policy", "policies", multiple=True, default=POLICIES, show_default=True)
@click.option("--waiting", type=click.IntRange(min=1), default=WAITING, show_default=True)
@click.option("--events", "count", type=click.IntRange(min=100), default=EVENTS, show_default=True)
def main(json_path: str | None, policies: tuple[str, ...], waiting: int, count: int) -> None:
    """Time per event of the controller, from 8 to 1 024 GPUs with 10 000 requests waiting."""
    check_json_path(json_path)
    details = measure(policies, waiting, count)
    console = human_console(json_path)
    for policy, found in details.policies.items():
        for gpus, times in found.by_gpus.items():
            console.print(
                f"{policy:8} {gpus:>4} GPUs: p50 {times.p50_ms:.3f} ms, p99 {times.p99_ms:.3f} ms; "
                f"deciding {times.deciding_p50_ms:.3f}, {times.deciding_p99_ms:.3f} ms"
            )
        speed = details.simulated_steps_per_s[policy]
        console.print(f"{policy:8} grows as GPUs^{found.growth:.2f}; simulates {speed:.0f} steps/s")
    sizes = {str(gpus): slowest(details.policies, str(gpus)).model_dump() for gpus in GPUS}
    write_json(json_path, json.dumps({**details.model_dump(), **sizes}, indent=2))


if __name__ == "__main__":
    main()
