"""Is a load that changes followed by loads and drops, without a lost request? See README.md.

python benchmarks/placement_live.py --json placement_live.json
"""

from __future__ import annotations

import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import click
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.ready import wait_until_settled
from elastic_dit.client import Client
from elastic_dit.cluster.launch.fork_server import HEAVY_PRELOAD, LIGHT_PRELOAD, fork_server
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.errors import ElasticDitError
from elastic_dit.future import GenerationFuture
from elastic_dit.request import Stage

PROMPT = "a red circle moving left on a black background"
LIMIT_S = 240.0
"""Longest wait for what is still under way when a trace ends, and for a machine to go, seconds."""
MANY_STEPS, FEW_STEPS = 30, 2
_LOOK_S = 0.25
"""Seconds between two looks at the clock, and at what came back."""
_FETCH_S = 60.0
"""Longest transfer of a result that is there, seconds."""
_QUICK = {"interval_s": 1.0, "cooldown_s": 3.0, "confirm_looks": 2}
"""Placement that looks often enough for traces of a minute; a real deployment has the defaults."""
_WINDOW_S = 5.0


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Move(_Report):
    """One line of the decision log about placement."""

    at_s: float
    """Seconds from the beginning of the trace."""
    what: str
    """`plan`, `load`, `drop`, `ask machines`, `join`, `lost` …"""
    subject: str
    """Stage, engine or machine."""
    gpus: tuple[int, ...]
    """GPUs concerned."""
    reason: str
    """Why."""


class Phase(_Report):
    """One half of a trace."""

    steps: int
    """Denoising steps of its requests."""
    begins_s: float
    """Seconds from the beginning of the trace."""
    submitted: int
    """Requests."""
    completed_per_minute: float
    """Requests that came back while it lasted, of either half."""
    ratio: str
    """GPUs per stage at its end, E:T:D."""


class Trace(_Report):
    """One trace and what became of it."""

    gpus: int
    """Virtual GPUs at its beginning."""
    placement: str
    """Placement policy."""
    phases: tuple[Phase, Phase]
    """Before and after the change."""
    submitted: int
    """Requests in all."""
    completed: int
    """Requests with a result."""
    lost: int
    """Requests without one: 0, or the run fails."""
    repeated: int
    """Requests that were tried more than once: 0, or the run fails."""
    loads: int
    """Stages loaded after the change."""
    drops: int
    """Stages dropped after the change."""
    first_move_s: float | None
    """Seconds from the change to the first load or drop; null where nothing moved."""
    machines: int
    """Most machines that there were at once."""
    machines_left: int
    """Machines given back."""
    moves: tuple[Move, ...]
    """What moved, when and why: the decision log of placement."""


class PlacementLiveReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    cpus: int
    """CPU cores this process may use; all virtual GPUs share them."""
    backend: str
    """`torch` for the embedded model, `fake` for pretended clips."""
    wall_seconds: float
    """The whole run."""
    lost: int
    """Requests without a result, over both traces."""
    shift: Trace
    """From many steps to few, always as many requests under way."""
    rate: Trace
    """As many steps throughout, at a rate that doubles; a second machine may come and go."""


class Run:
    """One trace under way on one cluster."""

    def __init__(self, client: Client, cluster: LocalElasticCluster, size: int) -> None:
        self.client, self.cluster, self.size = client, cluster, size
        self.futures: list[GenerationFuture] = []
        self.done: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.done_at: list[float] = []
        self.machines = 1
        self.started = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds from its beginning."""
        return time.monotonic() - self.started

    @property
    def under_way(self) -> int:
        """Requests that have not come back."""
        while not self.done.empty():
            self.done_at.append(self.done.get())
        return len(self.futures) - len(self.done_at)

    def submit(self, steps: int) -> None:
        """One more request."""
        future = self.client.submit(
            PROMPT, num_inference_steps=steps, width=self.size, height=self.size, num_frames=9,
            seed=len(self.futures),
        )  # fmt: skip
        future.add_done_callback(lambda _: self.done.put(self.now))
        self.futures.append(future)

    def keep(self, steps: int, at_once: int, until_s: float) -> None:
        """Keep as many requests under way until a moment."""
        while self.now < until_s:
            for _ in range(at_once - self.under_way):
                self.submit(steps)
            self.look()

    def offer(self, steps: int, rate_hz: float, until_s: float) -> None:
        """Submit at a rate until a moment."""
        due_s = self.now
        while self.now < until_s:
            while due_s <= self.now:
                self.submit(steps)
                due_s += 1 / rate_hz
            self.look()

    def look(self) -> Mapping[str, Any]:
        """Let a moment pass; the status after it."""
        time.sleep(_LOOK_S)  # a trace goes by the clock
        status: Mapping[str, Any] = self.client.status()
        self.machines = max(self.machines, len(status["machines"]))
        return status

    def finish(self) -> None:
        """Wait for what is under way."""
        limit_s = self.now + LIMIT_S
        while self.under_way and self.now < limit_s:
            self.look()

    def until_alone(self) -> None:
        """Wait until machines that came have left again."""
        limit_s = self.now + LIMIT_S
        while self.now < limit_s and len(self.look()["machines"]) > 1:
            pass


def measure_shift(run: Run, placement: str, phase_s: float) -> Trace:
    """As many requests under way throughout, first of many steps, then of few."""
    gpus = run.cluster.gpus
    run.keep(MANY_STEPS, 2 * gpus, phase_s)
    first = run.look(), len(run.futures)
    run.keep(FEW_STEPS, 2 * gpus, 2 * phase_s)
    second = run.look()
    run.finish()
    return _trace(run, gpus, placement, (MANY_STEPS, FEW_STEPS), first, second, phase_s)


def measure_rate(run: Run, placement: str, phase_s: float) -> Trace:
    """What the cluster can do at 3/4 of it, then at twice that."""
    gpus = run.cluster.gpus
    rate_hz = 0.75 * _capacity_hz(run)
    base = run.now
    run.offer(MANY_STEPS, rate_hz, base + phase_s)
    first = run.look(), len(run.futures)
    run.offer(MANY_STEPS, 2 * rate_hz, base + 2 * phase_s)
    second = run.look()
    run.finish()
    run.until_alone()
    return _trace(run, gpus, placement, (MANY_STEPS, MANY_STEPS), first, second, phase_s, base=base)


def _capacity_hz(run: Run) -> float:
    """Requests per second of a full cluster; also warms it up. No queue is to be seen yet."""
    count = run.cluster.gpus + 2
    begin = run.now
    for _ in range(count):
        run.submit(MANY_STEPS)
    run.finish()
    return count / (run.now - begin)


def _trace(
    run: Run,
    gpus: int,
    placement: str,
    steps: tuple[int, int],
    first: tuple[Mapping[str, Any], int],
    second: Mapping[str, Any],
    phase_s: float,
    base: float = 0.0,
) -> Trace:
    status = run.client.status()
    offset = status["now"] - run.now
    moves = tuple(
        Move(at_s=one.pop("at") - offset, gpus=tuple(one.pop("gpus")), **one)
        for one in map(dict, status["moves"])
    )
    after = [move for move in moves if move.at_s >= base + phase_s]
    moved = [move.at_s for move in after if move.what in ("load", "drop")]
    counts = Counter(move.what for move in after)
    lost, repeated = _outcomes(run.futures)
    return Trace(
        gpus=gpus,
        placement=placement,
        phases=(
            _phase(run, steps[0], base, phase_s, first[1], first[0]),
            _phase(run, steps[1], base + phase_s, phase_s, len(run.futures) - first[1], second),
        ),
        submitted=len(run.futures),
        completed=len(run.futures) - lost,
        lost=lost,
        repeated=repeated,
        loads=counts["load"],
        drops=counts["drop"],
        first_move_s=moved[0] - base - phase_s if moved else None,
        machines=run.machines,
        machines_left=sum(move.what == "machine leaves" for move in moves),
        moves=moves,
    )


def _phase(
    run: Run, steps: int, begins_s: float, seconds: float, submitted: int, end: Mapping[str, Any]
) -> Phase:
    back = sum(begins_s <= at < begins_s + seconds for at in run.done_at)
    return Phase(
        steps=steps,
        begins_s=begins_s,
        submitted=submitted,
        completed_per_minute=60 * back / seconds,
        ratio=_ratio(end["gpus"]),
    )


def _ratio(gpus: Sequence[Mapping[str, Any]]) -> str:
    held = Counter(key["stage"] for gpu in gpus for key in gpu["resident"])
    return ":".join(str(held[stage]) for stage in Stage)


def _outcomes(futures: Sequence[GenerationFuture]) -> tuple[int, int]:
    """How many have no result, and how many took more than one attempt."""
    lost = 0
    for future in futures:
        try:
            future.result(timeout=_FETCH_S if future.done() else _LOOK_S)
        except (ElasticDitError, TimeoutError):
            lost += 1
    return lost, sum(future.progress().attempt > 1 for future in futures)


@contextmanager
def _running(config: Config, gpus: int, size: int) -> Iterator[Run]:
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalElasticCluster(virtual_gpus=gpus, config=config, dashboard_address=None)
        )
        client = stack.enter_context(Client(cluster, config=config))
        wait_until_settled(client, gpus, config.client.ready_timeout_s)
        yield Run(client, cluster, size)


def _config(backend: str, **placement: Any) -> Config:
    return Config.parse(
        {
            "engine": {"backend": backend},
            "control": {"window_s": _WINDOW_S},
            "placement": {**_QUICK, **placement},
        }
    )


def measure(
    backend: str, placement: str, gpus: int, phase_s: float, size: int, say: Callable[[str], None]
) -> PlacementLiveReport:
    """Both traces, each on a cluster of its own."""
    begin = time.monotonic()
    ratio = {"encoder": 1, "dit": max(1, gpus - 2), "decoder": 1}
    with fork_server(HEAVY_PRELOAD if backend == "torch" else LIGHT_PRELOAD):
        config = _config(backend, policy=placement, ratio=ratio)
        with _running(config, gpus, size) as run:
            say(f"{gpus} virtual GPUs are up; requests of {MANY_STEPS}, then {FEW_STEPS} steps")
            shift = measure_shift(run, placement, phase_s)
        half = max(1, gpus // 2)
        config = _config(backend, policy=placement, ratio={"dit": 2}, max_machines=2)
        with _running(config, half, size) as run:
            say(f"A machine of {half} virtual GPUs is up; a rate that doubles")
            rate = measure_rate(run, placement, phase_s)
    return PlacementLiveReport(
        software=f"elastic-dit {__version__}",
        cpus=len(os.sched_getaffinity(0)),
        backend=backend,
        wall_seconds=time.monotonic() - begin,
        lost=shift.lost + rate.lost,
        shift=shift,
        rate=rate,
    )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--gpus", type=click.IntRange(min=2), default=8, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=1.0), default=18.0, show_default=True,
    help="Length of each half of each trace.",
)  # fmt: skip
@click.option("--size", type=click.IntRange(min=16), default=48, show_default=True)
@click.option("--placement", default="hybrid", show_default=True)
@click.option("--fake", is_flag=True, help="Pretended clips: to try the script itself.")
def main(
    json_path: str | None, gpus: int, seconds: float, size: int, placement: str, fake: bool
) -> None:
    """Two traces that change, on virtual GPUs: what moved, how soon, and what was lost."""
    check_json_path(json_path)
    console = human_console(json_path)
    report = measure("fake" if fake else "torch", placement, gpus, seconds, size, console.print)
    for name, trace in (("shift", report.shift), ("rate", report.rate)):
        before, after = trace.phases
        console.print(
            f"{name}: E:T:D {before.ratio} to {after.ratio}, {trace.loads} loads and"
            f" {trace.drops} drops, up to {trace.machines} machines, {trace.machines_left} left;"
            f" {trace.lost} of {trace.submitted} requests lost, {trace.repeated} repeated"
        )
    write_json(json_path, report.model_dump_json(indent=2))
    if report.lost or report.shift.repeated or report.rate.repeated:
        raise click.ClickException(f"{report.lost} requests are lost")


if __name__ == "__main__":
    main()
