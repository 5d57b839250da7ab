"""Minutes of load with a fault every ten seconds: what is lost, and what piles up. See README.md.

python benchmarks/soak.py --minutes 10 --report docs/results/soak.md --json soak.json
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import psutil
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.drill.faults import FAULTS, Scene
from elastic_dit.drill.load import Load
from elastic_dit.drill.run import DrillOptions, drill_config
from elastic_dit.drill.stand import Stand
from elastic_dit.errors import ClusterError
from elastic_dit.files import write_atomically

BATCH = 4
"""Requests that come with each fault."""
LIMIT_S = 180.0
"""Longest wait for any one thing, seconds."""
_WITHOUT = {"restart", "full-queue"}
"""Faults that are no matter of seconds: the drill has them."""
_LOOK_S = 0.05


class Footprint(BaseModel):
    """What this process, with the scheduler and the client in it, holds."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    memory_bytes: int
    """Resident memory, bytes."""
    threads: int
    """Threads."""
    files: int
    """Open file descriptors."""


class Report(BaseModel):
    """All of what is written."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    software: str
    """Name and version of what wrote it."""
    virtual_gpus: int
    """Engines."""
    fake: bool
    """Whether they only pretend."""
    seconds: float
    """Time under load."""
    faults: dict[str, int]
    """How often each happened."""
    without_victim: int
    """Faults that found no request in the state that they need."""
    accepted: int
    """Requests."""
    completed: int
    """Of which have a result."""
    failed: int
    """Of which ended with an error."""
    cancelled: int
    """Of which were cancelled, in storms."""
    lost: int
    """Of which did not end."""
    duplicated: int
    """Of which came to a result twice."""
    differing: int
    """Results that are not those without faults."""
    steps_repeated: int
    """Denoising steps done once more."""
    reasons: tuple[str, ...]
    """Errors of the failed ones."""
    before: Footprint
    """After the first batch without faults."""
    after: Footprint
    """When all requests had ended."""
    kept_bytes: int
    """Tensors in the engines' outboxes when all requests had ended."""


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=10.0)
@click.option("--every", type=click.FloatRange(min=0, min_open=True), default=10.0, metavar="S")
@click.option("--virtual-gpus", type=click.IntRange(3, 64), default=4)
@click.option("--fake", is_flag=True, help="Pretended engines.")
@click.option("--seed", type=int, default=0)
@click.option("--report", "page", type=click.Path(dir_okay=False), metavar="FILE")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, allow_dash=True))
def main(
    minutes: float,
    every: float,
    virtual_gpus: int,
    fake: bool,
    seed: int,
    page: str | None,
    json_path: str | None,
) -> None:
    """Hurt a cluster for a while."""
    check_json_path(json_path)
    console = human_console(json_path)
    options = DrillOptions(
        virtual_gpus=virtual_gpus, requests=BATCH, faults=(), steps=16, seed=seed, fake=fake,
        config=None, limit_s=LIMIT_S,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="elastic-dit-soak-") as folder:
        config = drill_config(options, BATCH, Path(folder))
        with closing(Stand(virtual_gpus, config)) as stand:
            report = _soak(stand, Load(stand.client, seed, options.steps), options, minutes, every)
    console.print(report.model_dump_json(indent=2))
    if page is not None:
        write_atomically(Path(page), _page(report).encode())
    write_json(json_path, report.model_dump_json(indent=2))
    raise SystemExit(bool(report.lost or report.duplicated or report.differing))


def _soak(
    stand: Stand, load: Load, options: DrillOptions, minutes: float, every_s: float
) -> Report:
    stand.until(stand.is_whole, LIMIT_S, "all stages loaded")
    load.learn(BATCH, LIMIT_S)
    dice, names, faults, without = random.Random(options.seed), [], Counter[str](), 0
    before, began = _footprint(), time.monotonic()
    for number, due in enumerate(_moments(began, minutes * 60.0, every_s)):
        while time.monotonic() < due:
            time.sleep(_LOOK_S)
        stand.arm()
        name = dice.choice(sorted(FAULTS.keys() - _WITHOUT))
        batch = load.submit(f"{number}-{name}", BATCH)
        scene = Scene(stand, load, batch, dice, every_s, title=f"{number}-{name}")
        try:
            FAULTS[name](scene)
            faults[name] += 1
        except ClusterError:
            without += 1
        names += scene.names
    stand.arm()
    ends = load.collect(names, LIMIT_S)
    seconds = time.monotonic() - began
    stand.until(stand.is_whole, LIMIT_S, "all engines idle")
    completed = stand.witness.completed
    return Report(
        software=f"elastic-dit {__version__}",
        virtual_gpus=options.virtual_gpus,
        fake=options.fake,
        seconds=seconds,
        faults=dict(sorted(faults.items())),
        without_victim=without,
        accepted=len(names),
        completed=ends.completed,
        failed=ends.failed,
        cancelled=ends.cancelled,
        lost=ends.lost,
        duplicated=sum(completed[name] > 1 for name in names),
        differing=ends.differing,
        steps_repeated=stand.witness.repeated.total(),
        reasons=tuple(ends.reasons),
        before=before,
        after=_footprint(),
        kept_bytes=stand.kept_bytes(),
    )


def _moments(began: float, length_s: float, every_s: float) -> Iterator[float]:
    due = began
    while due < began + length_s:
        yield due
        due = max(due + every_s, time.monotonic())


def _footprint() -> Footprint:
    process = psutil.Process()
    return Footprint(
        memory_bytes=process.memory_info().rss,
        threads=process.num_threads(),
        files=process.num_fds(),
    )


def _page(report: Report) -> str:
    kind = "pretended engines" if report.fake else "the embedded model"
    counts = {
        "accepted": report.accepted,
        "completed": report.completed,
        "cancelled by the soak": report.cancelled,
        "failed": report.failed,
        "lost": report.lost,
        "with two results": report.duplicated,
        "with other pixels than without faults": report.differing,
        "denoising steps repeated": report.steps_repeated,
    }
    was, now = report.before, report.after
    grown = (
        f"{(now.memory_bytes - was.memory_bytes) / 2**20:+.1f} MiB of memory, "
        f"{now.threads - was.threads:+d} threads, {now.files - was.files:+d} open files"
    )
    lines = [
        "# Soak\n",
        f"{report.seconds / 60:.1f} minutes on {report.virtual_gpus} virtual GPUs with {kind},",
        "a fault every few seconds while requests run, by `python benchmarks/soak.py`",
        f"({report.software}).\n",
        *_table("requests", counts),
        *_table("fault", report.faults),
        f"{report.without_victim} more found no request in the state that they need.\n",
        f"Scheduler and client together: {grown}. Once all requests had ended, engines kept",
        f"{report.kept_bytes} bytes of tensors.\n",
    ]
    return "\n".join(lines)


def _table(head: str, rows: dict[str, int]) -> list[str]:
    lines = [f"| {name} | {count} |" for name, count in rows.items()]
    return [f"| {head} | |", "| --- | --- |", *lines, ""]


if __name__ == "__main__":
    main()
