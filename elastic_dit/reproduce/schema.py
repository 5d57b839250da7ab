"""The JSON that ``elastic-dit reproduce`` writes: models and their page.

The page, ``docs/simulation-schema.md``, is made from them and from those of ``elastic-dit plan``::

    python -m elastic_dit.reproduce.schema > docs/simulation-schema.md
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "BestStatic",
    "Burst64",
    "Cell64",
    "CellReport",
    "Claim",
    "ClassFigures",
    "DditReport",
    "DditSetting",
    "GridReport",
    "MixedFigures",
    "MixedReport",
    "Nearness",
    "PolicyFigures",
    "Ratio",
    "Ratios",
    "Step",
    "schema_page",
]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PolicyFigures(_Report):
    """One policy in one cell, averaged over the seeds."""

    submitted: int
    """Requests over all seeds."""
    completed: int
    """How many of them were completed."""
    mean_s: float
    """Mean latency from arrival to the end."""
    p99_s: float
    """Its 99th percentile."""
    gpu_seconds: float
    """GPUs x the seconds they were occupied: the cost (DDiT eq. 2)."""


class CellReport(_Report):
    """One mix at one arrival rate."""

    policies: dict[str, PolicyFigures]
    """By name of the policy."""
    mean_bound_s: float
    """No schedule has a lower mean latency; a loose bound, see `elastic_dit.reproduce.bounds`."""


class Ratio(_Report):
    """One quantity of one policy over that of another, over all cells."""

    geomean: float
    """Geometric mean over the cells."""
    max: float
    """The worst cell."""
    max_cell: str
    """Which that is."""


class Ratios(_Report):
    """Latency of one policy over that of another."""

    mean: Ratio
    """Of the mean latencies."""
    p99: Ratio
    """Of the 99th percentiles."""


class GridReport(_Report):
    """Single node: mixes x arrival rates (DDiT §6.2, Figures 10 and 16)."""

    cells: dict[str, CellReport]
    """By `low:medium:high@rate`."""
    elastic_vs_ddit: Ratios
    """`elastic` over `ddit`: below 1 is better."""
    mean_vs_bound: dict[str, float]
    """Geometric mean, by policy, of mean latency over `mean_bound_s`."""


class Cell64(_Report):
    """One mix of the burst on many GPUs."""

    optimum_gpu_s: float
    """Cost that Algorithm 1's deal needs, each type at one DoP, VAE on the DiT's GPUs."""
    least_gpu_s: float
    """GPU-seconds when every stage runs where it takes fewest: no schedule costs less."""
    policies: dict[str, PolicyFigures]
    """By name of the policy."""


class Burst64(_Report):
    """Burst on 8 machines of 8 GPUs (DDiT §6.2, Figures 11 and 12)."""

    cost_vs_optimum: dict[str, float]
    """Geometric mean over the mixes, by policy, of cost over `optimum_gpu_s`."""
    cost_vs_least: dict[str, float]
    """The same over `least_gpu_s`."""
    mixes: dict[str, Cell64]
    """By `low:medium:high`."""


class Step(_Report):
    """What one mechanism changes in one cell: latency with it over latency without."""

    cell: str
    """`low:medium:high@rate`."""
    mean: float
    """Ratio of the mean latencies."""
    p99: float
    """Ratio of the 99th percentiles."""


class Claim(_Report):
    """One figure of the paper, and ours."""

    where: str
    """Section and figure."""
    what: str
    """What is claimed of DDiT, as a part of the latency or cost of what it is compared with."""
    theirs: str
    """The paper's figure."""
    low: float
    """Ours, the least favourable of the cells it speaks of."""
    high: float
    """Ours, the most favourable."""
    verdict: Literal["reproduced", "in part", "not reproduced"]
    """Reproduced: within `tolerance`. In part: the same direction, another size."""
    why: str
    """What keeps it from being reproduced; empty where it is."""


class BestStatic(_Report):
    """Which static DoP, VAE on all its GPUs, is best at one arrival rate."""

    theirs: int
    """What the paper says (§6.2)."""
    ours: int
    """That of the lowest mean latency, by geometric mean over the mixes."""


class DditSetting(_Report):
    """What was run; the paper leaves the first two open."""

    requests: int
    """Requests per run, in the burst too."""
    seeds: int
    """Runs per cell; figures are means over them."""
    gpus: int
    """GPUs of the single machine."""
    policies: tuple[str, ...]
    """Policies of the grid."""
    tolerance: float
    """Distance from the paper's figure that counts as reproduced."""


class DditReport(_Report):
    """All of what `elastic-dit reproduce ddit --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    setting: DditSetting
    """What was run."""
    grid: GridReport
    """Single node."""
    burst64: Burst64
    """Burst on 64 GPUs."""
    decoupling: tuple[Step, ...]
    """DoP 2 with the VAE on one GPU over DoP 2 with the VAE on both (DDiT Figure 13)."""
    promotion: tuple[Step, ...]
    """DDiT over DDiT without promotion (DDiT Figure 14)."""
    queue_optimum: dict[str, dict[str, float | None]]
    """GPUs x mean time of Algorithm 1's queue model, mix 1:1:1 on one machine, by arrival rate:
    `printed` takes eq. 7 as it stands, `corrected` halves the wait only; null where no deal keeps
    up."""
    best_static: dict[str, BestStatic]
    """By arrival rate."""
    claims: tuple[Claim, ...]
    """Theirs beside ours."""
    wall_seconds: float
    """Time the simulations took."""


class ClassFigures(_Report):
    """One class of requests."""

    attainment: float
    """Part of its submitted requests that met their deadline."""


class MixedFigures(_Report):
    """One policy on one workload, averaged over the seeds."""

    attainment: float
    """Part of the submitted requests that met their deadline."""
    completed: int
    """Completed requests, over all seeds."""
    submitted: int
    """Submitted requests, over all seeds."""
    mean_s: float
    """Mean latency of completed requests."""
    p99_s: float
    """Its 99th percentile."""
    S: ClassFigures
    """480p, 49 frames."""
    M: ClassFigures
    """480p, 81 frames."""
    L: ClassFigures
    """720p, 81 frames."""


class Nearness(_Report):
    """How near one of our policies is to the listed one that it re-implements."""

    listed: str
    """Name of the listed policy."""
    attainment: float
    """Distance of the two attainments, mean over the workloads."""
    attainment_max: float
    """The largest."""
    max_workload: str
    """Where that is, `profile@load`."""
    mean_s: float
    """Our mean latency over theirs, geometric mean over the workloads."""


class MixedReport(_Report):
    """All of what `elastic-dit reproduce mixed-priority --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    seeds: tuple[int, ...]
    """Which workloads of each profile and load."""
    handover_s: float
    """Time of every change of group."""
    mixed_priority: dict[str, dict[str, MixedFigures]]
    """By `profile@load` and policy."""
    listed: dict[str, dict[str, MixedFigures]]
    """What others list for the same workloads, by `profile@load` and their name of the policy."""
    best_listed: dict[str, str]
    """The listed policy of the highest attainment, by `profile@load`."""
    lead: dict[str, float]
    """Attainment of `elastic` less that of the best listed policy, by `profile@load`."""
    nearness: dict[str, Nearness]
    """Of those of our policies that re-implement a listed one, by name."""
    wall_seconds: float
    """Time the simulations took."""


_INTRODUCTION = """\
# Schema of simulated figures

`elastic-dit reproduce ddit --json FILE` writes a `DditReport`,
`elastic-dit reproduce disagfusion --json FILE` a `DisagFusionReport`,
`elastic-dit reproduce mixed-priority --json FILE` a `MixedReport`,
`elastic-dit reproduce predictor --json FILE` a `PredictorReport`, and
`elastic-dit plan --json FILE` a `PlanReport`. All times are in seconds.
Fields may be added; what is here keeps its meaning within one `schema_version`.

This page is made by `python -m elastic_dit.reproduce.schema`.
"""

_MODELS: tuple[type[_Report], ...] = (
    DditReport,
    DditSetting,
    GridReport,
    Ratios,
    Ratio,
    CellReport,
    PolicyFigures,
    Burst64,
    Cell64,
    Step,
    BestStatic,
    Claim,
    MixedReport,
    MixedFigures,
    ClassFigures,
    Nearness,
)


def schema_page() -> str:
    """The page that documents the reports, as Markdown.

    Returns
    -------
    str
        One table per model, the outermost first.
    """
    from elastic_dit.report.schema import model_table
    from elastic_dit.reproduce import disagfusion_schema as disagfusion
    from elastic_dit.reproduce import predictor_schema as predictor
    from elastic_dit.simulate.plan import ClassRow, PlanReport, PlanRow

    models: tuple[type[BaseModel], ...] = (
        *_MODELS,
        disagfusion.DisagFusionReport,
        disagfusion.DisagFusionSetting,
        disagfusion.TraceFigures,
        disagfusion.ChangeFigures,
        disagfusion.ScalingFigures,
        disagfusion.JitterFigures,
        disagfusion.Comparison,
        predictor.PredictorReport,
        predictor.PredictorSetting,
        predictor.PredictorFigures,
        predictor.SituationFigures,
        predictor.ChoiceFigures,
        predictor.ShiftFigures,
        PlanReport,
        PlanRow,
        ClassRow,
    )
    return "\n".join([_INTRODUCTION, *map(model_table, models)])


if __name__ == "__main__":
    print(schema_page(), end="")
