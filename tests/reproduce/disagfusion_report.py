"""A small report of DisagFusion's evaluation, made once."""

from __future__ import annotations

from functools import cache

from elastic_dit.reproduce.disagfusion import DisagFusionExperiment, reproduce_disagfusion
from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport

SMALL = DisagFusionExperiment(
    phase_s=240.0, settle_s=120.0, seeds=(0,), gpus=(4,), written_phase_s=180.0
)


@cache
def small_report() -> DisagFusionReport:
    """Every run of the evaluation, each a few minutes long: figures of no meaning."""
    return reproduce_disagfusion(SMALL, processes=1)
