"""What does the way through client, control plane and engines cost? See README.md beside this.

python benchmarks/overhead.py --json overhead.json
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from typing import Any, Literal

import click
import distributed
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.catalog import ModelCard
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.ready import wait_until_settled
from elastic_dit.client import Client
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.report.plain import PlainProcess, frames_digest
from elastic_dit.request import GenerationRequest, Stage

PROMPT = "a red circle moving left on a black background"
LIMIT_S = 600.0
"""Longest wait for one request, seconds."""
_ENGINES = 3


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class HandOff(_Report):
    """One passage of tensors from process to process."""

    source: str
    """Stage that made them."""
    target: str
    """Who took them: a stage, or `client`."""
    bytes: int
    """Size of the tensors."""
    seconds: float
    """Median over the repeats, from asking for them until they can be used."""


class OverheadReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    cpus: int
    """CPU cores this process may use."""
    threads: int
    """Torch threads of the plain pipeline and of each engine."""
    size: str
    """`WIDTHxHEIGHT`, pixels."""
    frames: int
    """Frames."""
    steps: int
    """Denoising steps."""
    guidance_scale: float
    """Classifier-free guidance; above 1 a step is two passes."""
    wall_ratio: float
    """Median of `wall_ratios`: below 1.03 is the aim, above 1.10 is a failure."""
    wall_ratios: tuple[float, ...]
    """elastic-dit's wall time over the plain pipeline's, pair by pair."""
    best_ratio: float
    """The fastest of ours over the fastest of theirs: what remains without other load."""
    elastic_seconds: tuple[float, ...]
    """Wall time of each request, from `submit` until the frames are at the client."""
    plain_seconds: tuple[float, ...]
    """Wall time of each plain pipeline call, measured inside its process."""
    stage_seconds: dict[Stage, float]
    """Median time on the engines."""
    outside_stages_seconds: float
    """Median of what is left of a request's wall time: queues, control, hand-offs, delivery."""
    hand_offs: tuple[HandOff, ...]
    """Every passage of tensors."""
    identical: bool
    """Whether every pair's frames were equal in every pixel."""


class Pairs:
    """Alternating runs of both sides, and what was measured."""

    def __init__(self, client: Client, plain: PlainProcess, options: dict[str, Any]) -> None:
        self.client = client
        self.plain = plain
        self.options = options
        self.card: ModelCard = client.models()[0]
        self.elastic_s: list[float] = []
        self.plain_s: list[float] = []
        self.fetch_s: list[float] = []
        self.stages_s: list[dict[Stage, float]] = []
        self.request_ids: list[str] = []
        self.result_bytes = 0
        self.identical = True

    def run(self, seed: int, elastic_first: bool, count: bool = True) -> None:
        """One pair, counted or for warming up."""
        request = self.request(seed)
        if elastic_first:
            ours, theirs = self.elastic(request, count), self.plain(request)
        else:
            theirs, ours = self.plain(request), self.elastic(request, count)
        self.identical &= theirs.digest == ours
        if count:
            self.plain_s.append(theirs.seconds)

    def request(self, seed: int) -> GenerationRequest:
        """The pair's request, complete."""
        options = {**self.options, "seed": seed, "request_id": f"overhead-{seed}"}
        return self.card.complete(options)

    def elastic(self, request: GenerationRequest, count: bool) -> str:
        """One request through the cluster; digest of its frames."""
        started = time.perf_counter()
        future = self.client.submit(**request.model_dump(exclude={"deadline_s", "request_id"}))
        distributed.wait(future, timeout=LIMIT_S)
        delivered = time.perf_counter()
        result = future.result(timeout=LIMIT_S)
        ended = time.perf_counter()
        if count:
            self.elastic_s.append(ended - started)
            self.fetch_s.append(ended - delivered)
            self.stages_s.append({record.stage: record.seconds for record in result.records})
            self.request_ids.append(future.key)
            self.result_bytes = result.frames.nbytes
        return frames_digest(result.frames)

    def hand_offs(self) -> tuple[HandOff, ...]:
        """What the engines noted of their pulls, and the delivery to the client."""
        transfers = [
            transfer
            for transfers in self.client.dask.run(_transfers).values()
            for transfer in transfers or ()
            if transfer["request_id"] in self.request_ids
        ]
        return (
            *(_hand_off(transfers, stage) for stage in (Stage.ENCODER, Stage.DIT)),
            HandOff(
                source=Stage.DECODER,
                target="client",
                bytes=self.result_bytes,
                seconds=statistics.median(self.fetch_s),
            ),
        )


def _transfers(dask_worker: distributed.Worker) -> list[dict[str, Any]] | None:
    """On a worker: pulls of its engine; None where it has no engine."""
    plugin = dask_worker.plugins.get(EnginePlugin.name)
    return None if plugin is None else list(plugin.runner.inspect()["transfers"])


def _hand_off(transfers: list[dict[str, Any]], stage: Stage) -> HandOff:
    pulls = [transfer for transfer in transfers if transfer["stage"] == stage]
    following = stage.following
    assert following is not None
    return HandOff(
        source=stage,
        target=following,
        bytes=int(statistics.median(pull["nbytes"] for pull in pulls)),
        seconds=statistics.median(pull["seconds"] for pull in pulls),
    )


def measure(options: dict[str, Any], repeats: int, threads: int) -> OverheadReport:
    """Warm both sides up, then alternate; who goes first alternates too."""
    config = Config.parse({"engine": {"cpu_threads": threads}})
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalElasticCluster(virtual_gpus=_ENGINES, config=config, dashboard_address=None)
        )
        client = stack.enter_context(Client(cluster, config=config))
        wait_until_settled(client, _ENGINES, config.client.ready_timeout_s)
        plain = stack.enter_context(PlainProcess(config.models[0], threads))
        pairs = Pairs(client, plain, options)
        pairs.run(seed=0, elastic_first=True, count=False)
        for seed in range(1, repeats + 1):
            pairs.run(seed, elastic_first=seed % 2 == 0)
        return _report(pairs, threads)


def _report(pairs: Pairs, threads: int) -> OverheadReport:
    request = pairs.request(seed=0)
    ratios = [ours / theirs for ours, theirs in zip(pairs.elastic_s, pairs.plain_s, strict=True)]
    left_s = [
        wall - sum(stages.values())
        for wall, stages in zip(pairs.elastic_s, pairs.stages_s, strict=True)
    ]
    return OverheadReport(
        software=f"elastic-dit {__version__}",
        cpus=len(os.sched_getaffinity(0)),
        threads=threads,
        size=f"{request.width}x{request.height}",
        frames=request.num_frames,
        steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        wall_ratio=statistics.median(ratios),
        wall_ratios=tuple(ratios),
        best_ratio=min(pairs.elastic_s) / min(pairs.plain_s),
        elastic_seconds=tuple(pairs.elastic_s),
        plain_seconds=tuple(pairs.plain_s),
        stage_seconds={
            stage: statistics.median(stages[stage] for stages in pairs.stages_s) for stage in Stage
        },
        outside_stages_seconds=statistics.median(left_s),
        hand_offs=pairs.hand_offs(),
        identical=pairs.identical,
    )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--repeats", type=click.IntRange(min=1), default=31, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--size", type=click.IntRange(min=16), default=96, show_default=True)
@click.option("--frames", type=click.IntRange(min=1), default=17, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=30, show_default=True)
def main(
    json_path: str | None, repeats: int, threads: int, size: int, frames: int, steps: int
) -> None:
    """Wall time of one request through three engines over that of the plain pipeline."""
    check_json_path(json_path)
    options = {
        "prompt": PROMPT,
        "width": size,
        "height": size,
        "num_frames": frames,
        "num_inference_steps": steps,
    }
    report = measure(options, repeats, threads)
    console = human_console(json_path)
    least, most = min(report.wall_ratios), max(report.wall_ratios)
    console.print(f"wall_ratio {report.wall_ratio:.3f} ({least:.3f} to {most:.3f})")
    console.print(f"best_ratio {report.best_ratio:.3f}")
    console.print(f"identical frames: {report.identical}")
    for each in report.hand_offs:
        console.print(
            f"{each.source} -> {each.target}: {each.bytes} bytes in {each.seconds * 1000:.1f} ms"
        )
    write_json(json_path, report.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
