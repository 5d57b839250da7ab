"""elastic-dit, a plain diffusers loop and Ray Serve side by side. See README.md beside this.

python benchmarks/rivals.py --json rivals.json
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rival_bench import Answer, Load, Recovery, SideProcess, requests_of
from rival_page import page
from rival_report import (
    OURS,
    LoadFigures,
    RecoveryFigures,
    RivalsReport,
    SideReport,
    compare,
    losses,
)
from rival_sides import Setting

from elastic_dit import __version__
from elastic_dit.catalog import ModelCard
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.engine.fake import FAKE_CARD
from elastic_dit.errors import ElasticDitError
from elastic_dit.families import ServingHints, family_of
from elastic_dit.families.folder import ModelFolder
from elastic_dit.files import write_atomically
from elastic_dit.simulate.outcome import percentile

RIVALS = ("diffusers", "ray_serve")
MIX = [
    {"width": 64, "height": 64, "num_frames": 9, "num_inference_steps": 20},
    {"width": 96, "height": 96, "num_frames": 17, "num_inference_steps": 30},
    {"width": 48, "height": 48, "num_frames": 1, "num_inference_steps": 12},
    {"width": 96, "height": 64, "num_frames": 9, "num_inference_steps": 40},
]
"""Shapes of the mixed load, in turn: clips of three sizes and an image."""
SINGLE = MIX[1]
"""Shape of the requests that are alone, and of the one whose process is killed."""
TINY_MIX = [{"width": 32, "height": 32, "num_frames": 1, "num_inference_steps": 2}]


class Measured:
    """What has been measured of a side so far."""

    def __init__(self, side: SideProcess, start_s: float) -> None:
        self.side = side
        self.start_s = start_s
        self.singles: list[Answer] = []
        self.loads: list[Load] = []
        self.recovery: Recovery | None = None

    def report(self) -> SideReport:
        """In the words of the report."""
        latencies = [second for load in self.loads for second in load.latencies_s]
        largest = max((load.memory for load in self.loads), key=lambda memory: memory.rss_bytes)
        rounds = tuple(
            LoadFigures(
                throughput_per_s=len(load.latencies_s) / load.seconds, latencies_s=load.latencies_s
            )
            for load in self.loads
        )
        return SideReport(
            start_s=self.start_s,
            processes=largest.processes,
            rss_bytes=largest.rss_bytes,
            pss_bytes=largest.pss_bytes,
            single_s=tuple(answer.seconds for answer in self.singles),
            throughput_per_s=statistics.median(each.throughput_per_s for each in rounds),
            mean_latency_s=statistics.fmean(latencies),
            p99_latency_s=percentile(latencies, 99),
            rounds=rounds,
            recovery=self.recovery and RecoveryFigures(**vars(self.recovery)),
        )


class Rivalry:
    """All sides at once, taking turns; who goes first changes from turn to turn."""

    def __init__(self, card: ModelCard, setting: Setting, mix: Sequence[dict[str, int]]) -> None:
        self._card, self._setting, self._mix = card, setting, list(mix)
        self._seed = 0
        self.at_once = 2 * setting.gpus
        self.sides: dict[str, Measured] = {}

    def start(self, stack: ExitStack, name: str) -> None:
        """Start a side and warm it up, with as many requests of each shape as there are GPUs."""
        began = time.perf_counter()
        side = stack.enter_context(SideProcess(name, self._setting))
        requests = requests_of(self._card, self._mix, self._setting.gpus * len(self._mix), 0)
        side("load", requests, self.at_once)
        self.sides[name] = Measured(side, time.perf_counter() - began)

    def single(self, shape: dict[str, int], turn: int) -> None:
        """One request to each side, alone."""
        [request] = requests_of(self._card, [shape], 1, self._next_seed(1))
        for measured in self._in_turn(turn):
            measured.singles.append(measured.side("one", request))

    def load(self, count: int, turn: int) -> None:
        """A round of the mixed load to each side."""
        requests = requests_of(self._card, self._mix, count, self._next_seed(count))
        for measured in self._in_turn(turn):
            measured.loads.append(measured.side("load", requests, self.at_once))

    def kill(self, shape: dict[str, int]) -> None:
        """One dead process for each side."""
        [request] = requests_of(self._card, [shape], 1, self._next_seed(1))
        for measured in self.sides.values():
            measured.recovery = measured.side("kill", request)

    def identical(self) -> bool:
        """Whether all sides made the same frames."""
        made = [tuple(one.digest for one in measured.singles) for measured in self.sides.values()]
        recovered = [each.recovery.identical for each in self.sides.values() if each.recovery]
        return len(set(made)) == 1 and all(recovered)

    def _in_turn(self, turn: int) -> list[Measured]:
        sides = list(self.sides.values())
        first = turn % len(sides)
        return sides[first:] + sides[:first]

    def _next_seed(self, count: int) -> int:
        self._seed += count
        return 1000 + self._seed - count


def card_of(setting: Setting) -> ModelCard:
    """What the model accepts; no side needs to be up for it."""
    if setting.backend == "fake":
        return FAKE_CARD
    model = setting.config.models[0]
    folder = ModelFolder.open(model.path)
    hints = ServingHints.of(folder, model.options, model.name)
    return family_of(folder).card(model.name, folder, hints)


def measure(
    setting: Setting,
    names: Sequence[str],
    left_out: dict[str, str],
    *,
    mix: Sequence[dict[str, int]] = MIX,
    single: dict[str, int] = SINGLE,
    repeats: int,
    rounds: int,
    requests: int,
    kill: bool,
    say: Callable[[str], None],
) -> RivalsReport:
    """Start all sides, then alternate."""
    began = time.monotonic()
    rivalry = Rivalry(card_of(setting), setting, mix)
    with ExitStack() as stack:
        for name in names:
            rivalry.start(stack, name)
            say(f"{name} is up after {rivalry.sides[name].start_s:.0f} s")
        for turn in range(repeats):
            rivalry.single(single, turn)
        for turn in range(rounds):
            rivalry.load(requests, turn)
        if kill:
            rivalry.kill({**single, "num_inference_steps": 2 * single["num_inference_steps"]})
    sides = {name: measured.report() for name, measured in rivalry.sides.items()}
    ratios = {
        f"{OURS}_vs_{name}": compare(sides[OURS], side)
        for name, side in sides.items()
        if name != OURS
    }
    return RivalsReport(
        software=_software(names),
        cpus=len(os.sched_getaffinity(0)),
        gpus=setting.gpus,
        threads=setting.threads,
        ray_replicas=":".join(map(str, setting.ratio)),
        dispatch=setting.dispatch,
        placement=setting.placement,
        at_once=rivalry.at_once,
        requests=requests,
        mix=tuple(mix),
        wall_seconds=time.monotonic() - began,
        sides=sides,
        left_out=left_out,
        identical=rivalry.identical(),
        ratios=ratios,
        lost=tuple(losses(ratios)),
    )


def _software(names: Sequence[str]) -> dict[str, str]:
    versions = {OURS: f"elastic-dit {__version__}"}
    for name, package in zip(RIVALS, ("diffusers", "ray"), strict=True):
        if name in names:
            versions[name] = f"{package} {version(package)}"
    return versions


def _read_ratio(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int, int]:
    try:
        encoder, dit, decoder = (int(part) for part in value.split(":"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no ratio: write it as 1:1:1") from None
    if min(encoder, dit, decoder) < 1:
        raise click.BadParameter("each stage needs a replica")
    return encoder, dit, decoder


def _chosen(without: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Sides to measure, and those left out.

    Raises
    ------
    ElasticDitError
        Where Ray is missed.
    """
    short = {"ray": "ray_serve", "diffusers": "diffusers"}
    left_out = dict.fromkeys((short[word] for word in without), "left out by --without")
    names = [OURS, *(name for name in RIVALS if name not in left_out)]
    if "ray_serve" in names and importlib.util.find_spec("ray") is None:
        raise ElasticDitError(
            "Ray is not installed: pip install -c constraints.txt -e '.[rivals]', or --without ray"
        )
    return names, left_out


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--report", "page_path", type=click.Path(dir_okay=False, path_type=Path),
              metavar="FILE", help="Write a page of it.")  # fmt: skip
@click.option("--without", type=click.Choice(["ray", "diffusers"]), multiple=True)
@click.option(
    "--replicas", callback=_read_ratio, default="1:1:1", show_default=True, metavar="E:T:D",
    help="Ray's replicas per stage; the other sides have as many processes.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--dispatch", default="fcfs", show_default=True)
@click.option("--placement", default="colocated", show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=7, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--requests", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--no-kill", is_flag=True, help="Spare the processes.")
@click.option("--tiny", is_flag=True, help="Tiny requests: to try the script itself.")
@click.option("--fake", is_flag=True, help="Pretended clips on our side, likewise.")
def main(
    json_path: str | None,
    page_path: Path | None,
    without: tuple[str, ...],
    no_kill: bool,
    **options: Any,
) -> None:
    """The same requests under elastic-dit, plain diffusers loops and Ray Serve, in turns."""
    check_json_path(json_path)
    try:
        names, left_out = _chosen(without)
        setting = Setting(
            gpus=sum(options["replicas"]),
            threads=options["threads"],
            ratio=options["replicas"],
            dispatch=options["dispatch"],
            placement=options["placement"],
            backend="fake" if options["fake"] else "torch",
        )
        console = human_console(json_path)
        report = measure(
            setting,
            names,
            left_out,
            mix=TINY_MIX if options["tiny"] else MIX,
            single=TINY_MIX[0] if options["tiny"] else SINGLE,
            repeats=options["repeats"],
            rounds=options["rounds"],
            requests=options["requests"],
            kill=not no_kill,
            say=console.print,
        )
    except ElasticDitError as error:
        raise click.ClickException(str(error)) from None
    for line in _lines(report):
        console.print(line)
    write_json(json_path, report.model_dump_json(indent=2))
    if page_path is not None:
        write_atomically(page_path, page(report).encode())


def _lines(report: RivalsReport) -> Iterator[str]:
    for name, side in report.sides.items():
        recovery = side.recovery
        died = (
            f"; killed: answered after {recovery.answered_s:.1f} s, whole after"
            f" {recovery.restored_s:.1f} s, {recovery.resubmitted} times sent again"
            if recovery
            else ""
        )
        yield (
            f"{name}: {side.throughput_per_s:.2f}/s, mean {side.mean_latency_s:.2f} s,"
            f" p99 {side.p99_latency_s:.2f} s, alone {statistics.median(side.single_s):.2f} s,"
            f" {side.rss_bytes / 1e9:.2f} GB in {side.processes} processes{died}"
        )
    for pair, figures in report.ratios.items():
        yield f"{pair}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in figures.items())
    for name, reason in report.left_out.items():
        yield f"{name}: {reason}"
    yield f"identical frames: {report.identical}"
    yield "we lose: " + ("; ".join(report.lost) or "nowhere")


if __name__ == "__main__":
    main()
