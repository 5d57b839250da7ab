"""The JSON that ``elastic-dit reproduce predictor`` writes."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "ChoiceFigures",
    "PredictorFigures",
    "PredictorReport",
    "PredictorSetting",
    "ShiftFigures",
    "SituationFigures",
]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PredictorSetting(_Report):
    """What was run."""

    situations: int
    """Held-out situations drawn at random."""
    seed: int
    """Of that draw; the packaged predictor was trained on that of another seed."""
    requests: int
    """Per simulation."""
    arrival_seeds: tuple[int, ...]
    """Each split runs once on the arrivals of each; figures are means."""
    moves: int
    """The search tries splits that differ from the closed form's in so many GPUs."""


class ChoiceFigures(_Report):
    """What one predictor chose in one situation."""

    split: str
    """GPUs for encoder, DiT and decoder."""
    throughput: float
    """Its throughput over the highest that any split tried reached."""
    latency: float
    """Its mean latency over that of the best split: the least among those of nearly that
    throughput. May be below 1 where its throughput is lower."""


class SituationFigures(_Report):
    """One situation: a workload and GPUs."""

    name: str
    """Number of the draw, or where it is from."""
    gpus: dict[str, int]
    """By kind."""
    speeds: dict[str, float]
    """Of kinds that are not as fast as those for which `stage_seconds` hold."""
    demand: float | None
    """Arrivals over what the closed form's split can serve; null where its queue is never empty."""
    stage_seconds: dict[str, float]
    """Mean seconds of each stage of a request."""
    parts: int
    """Kinds of requests in the mix; 0 where all are alike."""
    tried: int
    """Splits simulated."""
    best: str
    """The best of them."""
    best_throughput_hz: float
    """Highest throughput of any."""
    best_latency_s: float
    """Mean latency with the best split."""
    chosen: dict[str, ChoiceFigures]
    """By predictor: `closed form` and `learned`."""


class PredictorFigures(_Report):
    """One predictor over all held-out situations."""

    mean_throughput: float
    """Mean of its throughput over the best found."""
    least_throughput: float
    """The worst situation."""
    best_found: float
    """Part of the situations in which it serves as much as the best."""
    mean_latency: float
    """Geometric mean of its latency over that of the best split."""
    worst_latency: float
    """The worst situation."""


class ShiftFigures(_Report):
    """What the detector of shifts does in one case."""

    runs: int
    """Traces of Poisson arrivals, each of another seed."""
    false_alarms: float
    """Part of the traces in which something was called a shift in a thousand requests before it."""
    median_requests: float | None
    """Requests after the shift until it was noticed; null for a case without a shift."""
    most_requests: int | None
    """The slowest trace."""


class PredictorReport(_Report):
    """All of what `elastic-dit reproduce predictor --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    setting: PredictorSetting
    """What was run."""
    predictors: dict[str, PredictorFigures]
    """By predictor: `closed form` and `learned`."""
    held_out: tuple[SituationFigures, ...]
    """Drawn at random."""
    papers: tuple[SituationFigures, ...]
    """Those of DisagFusion's evaluation."""
    forecasts: dict[str, dict[str, float]]
    """Root mean square error by kind of arrivals and forecast, over that of `last`."""
    shifts: dict[str, ShiftFigures]
    """By case."""
    wall_seconds: float
    """Time it all took."""
