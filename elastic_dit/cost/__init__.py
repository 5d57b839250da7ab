"""How long a stage takes and how much memory, by model, shape, DoP and GPU kind."""

from elastic_dit.cost.law import LatencyLaw, LawCost, Sample
from elastic_dit.cost.memory import LinearMemory, MemoryModel, StageMemory, fits
from elastic_dit.cost.model import (
    CostBook,
    CostModel,
    Shaped,
    best_dop,
    optimal_dop,
    step_time_cuts,
)
from elastic_dit.cost.polynomial import LatentGeometry, Polynomial, PolynomialCost
from elastic_dit.cost.readers import read_polynomial_cost, read_stage_latencies
from elastic_dit.cost.table import LatencyCurve, TableCost
from elastic_dit.cost.times import CostTimes

__all__ = [
    "CostBook",
    "CostModel",
    "CostTimes",
    "LatencyCurve",
    "LatencyLaw",
    "LatentGeometry",
    "LawCost",
    "LinearMemory",
    "MemoryModel",
    "Polynomial",
    "PolynomialCost",
    "Sample",
    "Shaped",
    "StageMemory",
    "TableCost",
    "best_dop",
    "fits",
    "optimal_dop",
    "read_polynomial_cost",
    "read_stage_latencies",
    "step_time_cuts",
]
