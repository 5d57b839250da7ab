"""What do a journal and a flood cost? See README.md beside this.

python benchmarks/durability.py --json durability.json
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click
import psutil
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.client import Client
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.errors import AdmissionRefused, GenerationCancelled
from elastic_dit.results import Video
from elastic_dit.simulate.outcome import percentile

LIMIT_S = 120.0
"""Longest wait for one request, seconds."""
_FLOOD_STEPS = 8
_QUIET = 50
"""Refusals timed one at a time, before the flood."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class JournalFigures(_Report):
    """Pairs of one request each, with and without a journal, one at a time."""

    accept_ms: float
    """Median of a submission until it is accepted, without a journal."""
    durable_accept_ms: float
    """The same with one: until it is on the disk."""
    wall_ms: float
    """Median from `submit` until the frames are at the client, without a journal."""
    durable_wall_ms: float
    """The same with one: until its result and its end were on the disk too."""
    accepted_per_s: float
    """Submissions at once that are accepted in a second, without a journal."""
    durable_accepted_per_s: float
    """The same with one."""


class FloodFigures(_Report):
    """Submissions at once, against `max_queued_gpu_seconds`."""

    submissions: int
    """How many, those that filled the queue before the flood among them."""
    max_queued_gpu_seconds: float
    """The limit."""
    accepted: int
    """Let in."""
    refused: int
    """Refused, all of them as `AdmissionRefused`."""
    completed: int
    """Accepted, and ended with a result."""
    cancelled: int
    """Accepted, and cancelled amid the flood."""
    lost: int
    """Accepted, and ended in no way at all."""
    refusal_ms: tuple[float, float]
    """Median and 99th percentile of a submission until it is refused, one at a time."""
    flood_refusal_ms: tuple[float, float]
    """The same in the flood, from the moment that all are sent."""
    cancel_ms: tuple[float, float]
    """The same of a cancel until it is confirmed."""
    retry_after_s: tuple[float, float]
    """Least and largest time told to those refused."""
    drained_s: float
    """From the first submission until the last accepted request had ended."""
    rss_bytes: tuple[int, int]
    """Memory of client and scheduler before the flood, and at its worst."""


class DurabilityReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    cpus: int
    """CPU cores this process may use."""
    repeats: int
    """Pairs of requests."""
    journal: JournalFigures
    flood: FloodFigures


def _engine(backend: str) -> dict[str, Any]:
    """Pretended engines need no process that has imported torch."""
    return {"backend": backend, "preload": backend == "torch"}


def measure_journal(folder: Path, repeats: int) -> JournalFigures:
    """Two clusters of pretended engines side by side, taking turns."""
    engine = _engine("fake")
    plain = Config.parse({"engine": engine})
    durable = Config.parse({"engine": engine, "journal": {"path": str(folder / "journal.sqlite")}})
    with ExitStack() as stack:
        clients = [stack.enter_context(_serve(config, 1)) for config in (plain, durable)]
        for client in clients:
            client.submit("warm up").result(LIMIT_S)
        accept_s: list[list[float]] = [[], []]
        wall_s: list[list[float]] = [[], []]
        for index in range(repeats):
            for side in (0, 1) if index % 2 else (1, 0):
                began = time.perf_counter()
                future = clients[side].submit(f"circle {index}")
                accept_s[side].append(time.perf_counter() - began)
                future.result(LIMIT_S)
                wall_s[side].append(time.perf_counter() - began)
        rates = [asyncio.run(_burst(_address(client), repeats)) for client in clients]
    return JournalFigures(
        accept_ms=1e3 * statistics.median(accept_s[0]),
        durable_accept_ms=1e3 * statistics.median(accept_s[1]),
        wall_ms=1e3 * statistics.median(wall_s[0]),
        durable_wall_ms=1e3 * statistics.median(wall_s[1]),
        accepted_per_s=rates[0],
        durable_accepted_per_s=rates[1],
    )


async def _burst(address: str, submissions: int) -> float:
    """Submissions at once; accepted ones per second."""
    async with Client(address, asynchronous=True) as client:
        began = time.perf_counter()
        futures = await asyncio.gather(
            *(client.submit(f"burst {index}") for index in range(submissions))
        )
        seconds = time.perf_counter() - began
        await client.gather(futures)
    return submissions / seconds


def measure_flood(submissions: int, gpus: int, limit_s: float, backend: str) -> FloodFigures:
    """Some virtual GPUs, and far more work than they are to take."""
    settings = {"engine": _engine(backend), "admission": {"max_queued_gpu_seconds": limit_s}}
    config = Config.parse(settings)
    with _serve(config, gpus) as client:
        # From here on it is known what a request takes.
        client.submit("a red circle", num_inference_steps=_FLOOD_STEPS).result(LIMIT_S)
        flood = Flood(submissions)
        asyncio.run(flood.run(_address(client)))
    return flood.figures(limit_s)


class Flood:
    """Submissions at once, with cancels in between, and what became of them."""

    def __init__(self, submissions: int) -> None:
        self._submissions = submissions
        self._quiet: list[tuple[float, float]] = []
        self._refused: list[tuple[float, float]] = []
        self._cancel_s: list[float] = []
        self._ends: list[Any] = []
        self._drained_s = 0.0
        self._process = psutil.Process()
        self._rss_before = self._rss_worst = self._process.memory_info().rss

    async def run(self, address: str) -> None:
        """Open the gates."""
        async with Client(address, asynchronous=True) as client:
            futures = await self._fill(client)
            began = time.perf_counter()
            submitting = asyncio.gather(
                *(self._submit(client, index, self._refused) for index in range(self._submissions))
            )
            while not submitting.done():
                await self._cancel_one(client)
                self._rss_worst = max(self._rss_worst, self._process.memory_info().rss)
            futures += [future for future in await submitting if future is not None]
            self._ends = await asyncio.gather(*futures, return_exceptions=True)
            self._drained_s = time.perf_counter() - began

    async def _fill(self, client: Client) -> list[Any]:
        """Submit one at a time, until so many were refused."""
        futures = []
        while len(self._quiet) < _QUIET:
            future = await self._submit(client, len(futures), self._quiet)
            futures += [] if future is None else [future]
        return futures

    async def _submit(self, client: Client, index: int, refused: list[tuple[float, float]]) -> Any:
        began = time.perf_counter()
        try:
            return await client.submit(f"circle {index}", num_inference_steps=_FLOOD_STEPS)
        except AdmissionRefused as refusal:
            refused.append((time.perf_counter() - began, refusal.retry_after_s))
            return None

    async def _cancel_one(self, client: Client) -> None:
        live = await client.requests(limit=1, ended=False)
        if live:
            began = time.perf_counter()
            await client.cancel(live[0].request_id)
            self._cancel_s.append(time.perf_counter() - began)

    def figures(self, limit_s: float) -> FloodFigures:
        """What was seen."""
        completed = sum(isinstance(end, Video) for end in self._ends)
        cancelled = sum(isinstance(end, GenerationCancelled) for end in self._ends)
        waits = [retry_after_s for _, retry_after_s in (*self._quiet, *self._refused)]
        return FloodFigures(
            submissions=len(self._ends) + len(self._quiet) + len(self._refused),
            max_queued_gpu_seconds=limit_s,
            accepted=len(self._ends),
            refused=len(self._quiet) + len(self._refused),
            completed=completed,
            cancelled=cancelled,
            lost=len(self._ends) - completed - cancelled,
            refusal_ms=_median_and_p99_ms([seconds for seconds, _ in self._quiet]),
            flood_refusal_ms=_median_and_p99_ms([seconds for seconds, _ in self._refused]),
            cancel_ms=_median_and_p99_ms(self._cancel_s),
            retry_after_s=(min(waits, default=0.0), max(waits, default=0.0)),
            drained_s=self._drained_s,
            rss_bytes=(self._rss_before, self._rss_worst),
        )


def _median_and_p99_ms(seconds: list[float]) -> tuple[float, float]:
    if not seconds:
        return 0.0, 0.0
    return 1e3 * statistics.median(seconds), 1e3 * (percentile(seconds, 99) or 0.0)


class _serve:  # noqa: N801  (a context manager)
    """A cluster on this machine, and a client of it."""

    def __init__(self, config: Config, gpus: int) -> None:
        self._config = config
        self._gpus = gpus
        self._stack = ExitStack()

    def __enter__(self) -> Client:
        cluster = LocalElasticCluster(
            virtual_gpus=self._gpus,
            config=self._config,
            dashboard_address=None,
            control_worker=False,
        )
        self._stack.enter_context(cluster)
        return self._stack.enter_context(Client(cluster))

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _address(client: Client) -> str:
    return str(client.dask.scheduler.address)


@click.command()
@click.option("--repeats", type=click.IntRange(2), default=200, show_default=True)
@click.option("--submissions", type=click.IntRange(2), default=500, show_default=True)
@click.option("--virtual-gpus", type=click.IntRange(1), default=2, show_default=True)
@click.option("--limit", type=float, default=10.0, show_default=True, help="GPU-seconds queued.")
@click.option(
    "--backend", type=click.Choice(["torch", "fake"]), default="torch", show_default=True,
    help="Of the flooded engines: the embedded model, or pretended clips in no time.",
)  # fmt: skip
@click.option("--json", "json_path", metavar="FILE", help="Write the figures there; - for stdout.")
def main(
    repeats: int,
    submissions: int,
    virtual_gpus: int,
    limit: float,
    backend: str,
    json_path: str | None,
) -> None:
    """Measure the cost of a journal, and a flood of submissions."""
    check_json_path(json_path)
    with tempfile.TemporaryDirectory() as folder:
        journal = measure_journal(Path(folder), repeats)
    report = DurabilityReport(
        software=f"elastic-dit {__version__}",
        cpus=len(os.sched_getaffinity(0)),
        repeats=repeats,
        journal=journal,
        flood=measure_flood(submissions, virtual_gpus, limit, backend),
    )
    human_console(json_path).print(report)
    if json_path is not None:
        write_json(json_path, report.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
