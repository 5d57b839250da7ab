"""The report of rivals.py: what each side did, ours over theirs, and where we lose."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

OURS = "elastic_dit"

Figure = Literal[
    "throughput",
    "mean_latency",
    "p99_latency",
    "single_request_wall",
    "recovery",
    "restoration",
    "memory_rss",
]


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class LoadFigures(_Report):
    """One round of the mixed load."""

    throughput_per_s: float
    """Requests answered in a second."""
    latencies_s: tuple[float, ...]
    """Of each request, from its submission until its frames are at the client."""


class RecoveryFigures(_Report):
    """`kill -9` of the process that works on a request, when half of its time is over."""

    undisturbed_s: float
    """The same request before, alone."""
    answered_s: float
    """From the kill until the client has the request's frames, be it that it sent it again."""
    restored_s: float
    """From the kill until as many processes are ready as before."""
    resubmitted: int
    """How often the client had to send it again, for its error told it to."""
    identical: bool
    """Whether the frames are those of the undisturbed request."""


class SideReport(_Report):
    """What one side did."""

    start_s: float
    """Until it answered the first requests: its start, and the warm-up."""
    processes: int
    """Processes of it under load, those that coordinate among them."""
    rss_bytes: int
    """Their resident memory under load, the largest of all rounds."""
    pss_bytes: int
    """The same, where a page that several of them share counts once."""
    single_s: tuple[float, ...]
    """Wall time of requests that are alone."""
    throughput_per_s: float
    """Median over the rounds."""
    mean_latency_s: float
    """Over all requests of all rounds."""
    p99_latency_s: float
    """The same."""
    rounds: tuple[LoadFigures, ...]
    """Each round of the mixed load."""
    recovery: RecoveryFigures | None
    """None with `--no-kill`."""


class RivalsReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: dict[str, str]
    """Name and version of each side."""
    cpus: int
    """CPU cores this process may use."""
    gpus: int
    """Computing processes of each side: virtual GPUs, loops, or replicas."""
    threads: int
    """Torch threads of each of them."""
    ray_replicas: str
    """Encoder:DiT:decoder."""
    dispatch: str
    """Our dispatch policy."""
    placement: str
    """Our placement policy."""
    at_once: int
    """Requests under way, always, in the mixed load."""
    requests: int
    """Requests of a round."""
    mix: tuple[dict[str, int], ...]
    """Their shapes, in turn."""
    wall_seconds: float
    """The whole run."""
    sides: dict[str, SideReport]
    """By name: `elastic_dit`, `diffusers`, `ray_serve`."""
    left_out: dict[str, str]
    """Sides that were not measured, and why."""
    identical: bool
    """Whether all sides made the same frames of the same requests, in every pixel."""
    ratios: dict[str, dict[Figure, float]]
    """`elastic_dit_vs_ray_serve` and `elastic_dit_vs_diffusers`: ours over theirs. Of throughput
    more is better, of all else less."""
    lost: tuple[str, ...]
    """Where we lose, in words; by a hundredth or less counts as even."""


def compare(ours: SideReport, theirs: SideReport) -> dict[Figure, float]:
    """Ours over theirs; of what was measured in turns, the median over the turns."""
    ratios: dict[Figure, float] = {
        "throughput": statistics.median(
            own.throughput_per_s / other.throughput_per_s
            for own, other in zip(ours.rounds, theirs.rounds, strict=True)
        ),
        "mean_latency": ours.mean_latency_s / theirs.mean_latency_s,
        "p99_latency": ours.p99_latency_s / theirs.p99_latency_s,
        "single_request_wall": statistics.median(
            own / other for own, other in zip(ours.single_s, theirs.single_s, strict=True)
        ),
        "memory_rss": ours.rss_bytes / theirs.rss_bytes,
    }
    if ours.recovery and theirs.recovery:
        ratios["recovery"] = ours.recovery.answered_s / theirs.recovery.answered_s
        ratios["restoration"] = ours.recovery.restored_s / theirs.recovery.restored_s
    return ratios


def losses(ratios: dict[str, dict[Figure, float]]) -> Iterator[str]:
    """Where we lose."""
    for pair, figures in ratios.items():
        for figure, ratio in figures.items():
            better = ratio if figure == "throughput" else 1 / ratio
            if better < 0.99:
                yield f"{pair}.{figure}: {ratio:.2f}"
