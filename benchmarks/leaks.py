"""What is left after cancels at all phases and jobs of which a fifth fails. See README.md.

python benchmarks/leaks.py --json leaks.json
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import click
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.config import Config
from elastic_dit.drill.load import DISTINCT, Ends, Load
from elastic_dit.drill.stand import Stand
from elastic_dit.errors import ClusterError, InvalidRequest
from elastic_dit.state import Phase

LIMIT_S = 120.0
"""Longest wait for any one thing, seconds."""
LOOKS = 5
"""At the warm cluster."""
SETTLE_S = 20.0
"""Longest wait for all to be back, seconds."""
WARM_UP = 60
"""Cancels, and jobs, before the first look: pools of threads and caches are filled then."""
BATCH = 12
"""Requests under way at once."""
STRIDE = 12
"""Most events between two cancels, which come at any phase therefore."""
AT_ONCE = 0.3
"""Part of the requests that are cancelled as soon as they are accepted."""
SLOWLY = {"step_delay_s": 0.005, "decode_delay_s": 0.01}
"""Added while requests are cancelled: pretended engines would be done before."""
SMALL = {"width": 32, "height": 32, "num_frames": 1}
STEPS = 4
LOSS = 0.04
"""Of the transfers, of which a job has two."""
OUT_OF_MEMORY = 0.085
"""Of the decodes. With the loss and the refused ones, a fifth of the jobs fails."""
REFUSED_EVERY = 20
"""One job of so many asks for what the model cannot make."""
JUDGED = ("files", "threads", "tensors", "kept_bytes", "unfinished")
"""What must be no more afterwards."""


class Holdings(BaseModel):
    """What one process holds."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    files: int
    """Open file descriptors, without idle connections."""
    threads: int
    """Threads."""
    tensors: int
    """Live torch tensors, weights included."""
    kept_bytes: int
    """Outputs of stages, kept for other engines, bytes."""
    unfinished: int
    """Requests, stages, transfers and keys that have not ended."""
    memory_bytes: int
    """Resident memory, bytes; not judged."""


class Report(BaseModel):
    """All of what is written."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    software: str
    """Name and version of what wrote it."""
    virtual_gpus: int
    """Engines."""
    policy: str
    """Dispatch policy."""
    fake: bool
    """Whether engines only pretend."""
    cancelled: int
    """Requests that were cancelled."""
    cancelled_in: dict[str, int]
    """Phases in which requests were found right before their cancel."""
    jobs: int
    """Of the mixed ones: all."""
    completed: int
    """Of which have a result."""
    failed: int
    """Of which failed by an injected fault."""
    refused: int
    """Of which were bad requests."""
    reasons: dict[str, int]
    """What the failed ones failed of, by the beginning of their errors."""
    lost: int
    """Requests that did not end, or failed where nothing was injected."""
    differing: int
    """Results that are not those without faults."""
    seconds: float
    """Time of the two loads."""
    before: dict[str, Holdings]
    """After the warm-up, by process: ``client`` has the scheduler in it."""
    after: dict[str, Holdings]
    """When all requests had ended."""
    grown: dict[str, dict[str, int]]
    """What was more afterwards, by process, of what is judged."""


@click.command()
@click.option("--cancels", type=click.IntRange(1, 100_000), default=1000)
@click.option("--jobs", type=click.IntRange(1, 100_000), default=500)
@click.option("--virtual-gpus", type=click.IntRange(3, 64), default=3)
@click.option("--policy", default="fcfs", help="Dispatch policy; with one of groups use 4 GPUs.")
@click.option("--fake", is_flag=True, help="Pretended engines.")
@click.option("--seed", type=int, default=0)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, allow_dash=True))
def main(
    cancels: int,
    jobs: int,
    virtual_gpus: int,
    policy: str,
    fake: bool,
    seed: int,
    json_path: str | None,
) -> None:
    """Cancel and fail, then count."""
    check_json_path(json_path)
    console = human_console(json_path)
    with closing(Stand(virtual_gpus, _config(fake, policy, seed))) as stand:
        trial = _Trial(stand, seed)
        trial.storm(WARM_UP)
        trial.mixed(WARM_UP)
        before = trial.most()
        trial.begin()
        began = time.monotonic()
        trial.storm(cancels)
        trial.mixed(jobs)
        seconds = time.monotonic() - began
        after = trial.settled(before)
    report = Report(
        software=f"elastic-dit {__version__}",
        virtual_gpus=virtual_gpus,
        policy=policy,
        fake=fake,
        **trial.figures(),
        jobs=jobs,
        seconds=seconds,
        before=before,
        after=after,
        grown=_grown(before, after),
    )
    console.print(report.model_dump_json(indent=2))
    write_json(json_path, report.model_dump_json(indent=2))
    raise SystemExit(bool(report.grown or report.lost or report.differing))


def _config(fake: bool, policy: str, seed: int) -> Config:
    """The cheapest requests, tried once, on armed engines."""
    settings: dict[str, Any] = {
        "control": {"dispatch": policy, "max_attempts": 1, "progress_interval_s": 0.01},
        "transfer": {"attempts": 1},
        "faults": {"seed": seed},
    }
    if fake:
        settings |= {"models": [{"name": "fake", "path": "fake"}], "engine": {"backend": "fake"}}
        return Config.parse(settings)
    model = Config().models[0].model_dump()
    return Config.parse({**settings, "models": [{**model, "options": {"defaults": SMALL}}]})


class _Trial:
    """Both loads on one cluster, and what they leave."""

    def __init__(self, stand: Stand, seed: int) -> None:
        self._stand = stand
        self._dice = random.Random(seed)
        self._load = Load(stand.client, seed, STEPS)
        self._batches = 0
        stand.until(stand.is_whole, LIMIT_S, "all stages loaded")
        self._load.learn(DISTINCT, LIMIT_S)
        self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self._ends = Ends()
        self._storm = Ends()
        self._phases: Counter[str] = Counter()
        self._refused = 0

    def figures(self) -> dict[str, Any]:
        """What became of the requests."""
        return {
            "cancelled": self._storm.cancelled,
            "cancelled_in": dict(sorted(self._phases.items())),
            "completed": self._ends.completed,
            "failed": self._ends.failed,
            "refused": self._refused,
            "reasons": dict(Counter(map(_beginning, self._ends.reasons))),
            "lost": self._ends.lost + self._storm.lost + self._storm.failed,
            "differing": self._ends.differing + self._storm.differing,
        }

    def storm(self, cancels: int) -> None:
        """Cancel so many, each at another moment of its life."""
        target = self._storm.cancelled + cancels
        self._stand.arm(**SLOWLY)
        while (missing := target - self._storm.cancelled) > 0:
            names = [self._submit_one() for _ in range(min(BATCH, missing))]
            self._dice.shuffle(names)
            for name in names:
                self._await_moment(name)
                self._cancel(name)
            _add(self._storm, self._load.collect(names, LIMIT_S))

    def _submit_one(self) -> str:
        [name] = self._submit("storm", 1)
        if self._dice.random() < AT_ONCE:
            self._cancel(name)
        return name

    def _cancel(self, name: str) -> None:
        if not self._load.done([name]):
            self._phases[self._phase(name)] += 1
            self._load.cancel(name)

    def mixed(self, jobs: int) -> None:
        """Run so many, of which a fifth fails."""
        self._stand.arm(transfer_loss=LOSS, decode_out_of_memory=OUT_OF_MEMORY)
        for batch in _batches(jobs):
            bad = [number for number in batch if number % REFUSED_EVERY == 0]
            names = self._submit("mixed", len(batch) - len(bad))
            for _ in bad:
                self._be_refused()
            _add(self._ends, self._load.collect(names, LIMIT_S))
        self._stand.arm()

    def most(self) -> dict[str, Holdings]:
        """The most that every process holds in some looks: a connection comes and goes."""
        looks = [self._look() for _ in range(LOOKS)]
        return {name: _most([look[name] for look in looks]) for name in looks[0]}

    def settled(self, before: Mapping[str, Holdings]) -> dict[str, Holdings]:
        """What they hold as soon as it is no more, or where that does not come about."""
        found: dict[str, Holdings] = {}

        def is_back() -> bool:
            nonlocal found
            found = self._look()
            return not _grown(before, found)

        with suppress(ClusterError):  # then the report says what has grown
            self._stand.until(is_back, SETTLE_S, "nothing has grown")
        return found

    def _look(self) -> dict[str, Holdings]:
        stand = self._stand
        stand.until(stand.is_whole, LIMIT_S, "all engines idle")
        told = dict(stand.client.dask.run(_in_worker).values())
        told["client"] = stand.client.dask.run_on_scheduler(_in_scheduler)
        return {name: Holdings(**told[name]) for name in sorted(told)}

    def _submit(self, title: str, count: int) -> list[str]:
        self._batches += 1
        return self._load.submit(f"{title}-{self._batches}", count)

    def _be_refused(self) -> None:
        try:
            self._stand.client.submit("a circle", num_inference_steps=10**9)
        except InvalidRequest:
            self._refused += 1

    def _await_moment(self, name: str) -> None:
        witness = self._stand.witness
        moment = witness.events + self._dice.randrange(STRIDE)

        def has_come() -> bool:
            return witness.events >= moment or bool(self._load.done([name]))

        self._stand.until(has_come, LIMIT_S, "the moment of a cancel")

    def _phase(self, name: str) -> str:
        def look(controller: Any) -> Phase | None:
            record = controller.table.get(name)
            return None if record is None else record.phase

        return str(self._stand.look(look))


def _in_worker(dask_worker: Any = None) -> tuple[str, dict[str, int]]:
    """Name and holdings of a worker's process."""
    runner = getattr(dask_worker.plugins.get("elastic-dit-engine"), "runner", None)
    parts = () if runner is None else (runner.desk, runner.groups, runner.inbox, runner.host)
    unfinished = len(dask_worker.data) + sum(map(len, parts))
    kept_bytes = 0 if runner is None else runner.outbox.nbytes
    return str(dask_worker.name), _process_holdings(unfinished, kept_bytes)


def _in_scheduler(dask_scheduler: Any = None) -> dict[str, int]:
    """Holdings of the process with scheduler and client."""
    reactor = dask_scheduler.plugins["elastic-dit-control"].reactor
    keys = [key for key in dask_scheduler.tasks if not str(key).startswith("elastic-dit-actor-")]
    unfinished = len(keys) + len(reactor.feed) + len(reactor.controller.table.live)
    return _process_holdings(unfinished, 0)


def _process_holdings(unfinished: int, kept_bytes: int) -> dict[str, int]:
    """Fields of `Holdings` for this process; idle connections are closed for the next look."""
    import gc
    import sys

    import psutil
    from distributed.core import ConnectionPool

    for pool in tuple(ConnectionPool._instances):
        pool.collect()
    gc.collect()
    torch, process = sys.modules.get("torch"), psutil.Process()
    tensors = [] if torch is None else [
        each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)
    ]  # fmt: skip
    return {
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "tensors": len(tensors),
        "kept_bytes": kept_bytes,
        "unfinished": unfinished,
        "memory_bytes": process.memory_info().rss,
    }


def _batches(jobs: int) -> Iterator[range]:
    for begin in range(0, jobs, BATCH):
        yield range(begin, min(jobs, begin + BATCH))


def _beginning(reason: str) -> str:
    """The stage and type of a failure, without the request's name and addresses."""
    stage, _, rest = reason.partition(" failed in its ")[2].partition(" stage")
    return f"{stage}: {rest.partition(': ')[2].partition(':')[0]}"


def _add(total: Ends, more: Ends) -> None:
    for name in "completed", "failed", "cancelled", "lost", "differing":
        setattr(total, name, getattr(total, name) + getattr(more, name))
    total.reasons += more.reasons


def _most(looks: list[Holdings]) -> Holdings:
    return Holdings(
        **{what: max(getattr(look, what) for look in looks) for what in Holdings.model_fields}
    )


def _grown(
    before: Mapping[str, Holdings], after: Mapping[str, Holdings]
) -> dict[str, dict[str, int]]:
    grown = {}
    for name, now in after.items():
        more = {what: getattr(now, what) - getattr(before[name], what) for what in JUDGED}
        if positive := {what: count for what, count in more.items() if count > 0}:
            grown[name] = positive
    return grown


if __name__ == "__main__":
    main()
