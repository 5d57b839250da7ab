"""The paper's statements held against our runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Literal

from elastic_dit.reproduce.ddit_paper import CLAIMS, STATIC_BEST, PaperClaim
from elastic_dit.reproduce.schema import BestStatic, CellReport, Claim, PolicyFigures
from elastic_dit.simulate.ddit_grid import Cell

__all__ = ["TOLERANCE", "best_static", "judge_claims", "verdict"]

TOLERANCE = 0.05
"""Five points of reduction from the paper's figure still count as reproduced."""

_Averages = Mapping[Cell, Mapping[str, PolicyFigures]]
_Verdict = Literal["reproduced", "in part", "not reproduced"]


def judge_claims(single: _Averages, multi: _Averages) -> tuple[Claim, ...]:
    """Hold every claim whose cells were run against them.

    Parameters
    ----------
    single, multi : mapping of Cell to mapping of str to PolicyFigures
        On one node and on 64 GPUs.
    """
    judged = []
    for claim in CLAIMS:
        reductions = list(_reductions(claim, multi if claim.multi_node else single))
        if reductions:
            judged.append(_judge(claim, min(reductions), max(reductions)))
    return tuple(judged)


def _reductions(claim: PaperClaim, found: _Averages) -> Iterator[float]:
    for cell, of in found.items():
        if cell.mix not in claim.mixes or cell.rate_per_s not in claim.rates:
            continue
        for other in claim.others:
            if claim.ours in of and other in of:
                yield 1.0 - _value(of[claim.ours], claim) / _value(of[other], claim)


def _value(figures: PolicyFigures, claim: PaperClaim) -> float:
    fields = {"mean": figures.mean_s, "p99": figures.p99_s, "cost": figures.gpu_seconds}
    return fields[claim.metric]


def _judge(claim: PaperClaim, low: float, high: float) -> Claim:
    found = verdict(claim, low, high)
    return Claim(
        where=claim.where,
        what=claim.what,
        theirs=claim.theirs,
        low=low,
        high=high,
        verdict=found,
        why="" if found == "reproduced" else claim.why,
    )


def best_static(cells: Mapping[str, CellReport]) -> dict[str, BestStatic]:
    """The best static DoP by arrival rate, theirs and ours.

    Parameters
    ----------
    cells : mapping of str to CellReport
        Of the single node, by ``low:medium:high@rate``.
    """
    found: dict[str, BestStatic] = {}
    for rate, theirs in STATIC_BEST.items():
        at_rate = [cell for name, cell in cells.items() if name.endswith(f"@{rate}")]
        means = {
            dop: statistics.geometric_mean(
                cell.policies[f"static-{dop}"].mean_s for cell in at_rate
            )
            for dop in (1, 2, 4, 8)
            if at_rate and f"static-{dop}" in at_rate[0].policies
        }
        if means:
            found[rate] = BestStatic(theirs=theirs, ours=min(means, key=lambda dop: means[dop]))
    return found


def verdict(claim: PaperClaim, low: float, high: float) -> _Verdict:
    """Whether the reductions found are those claimed.

    Parameters
    ----------
    claim : PaperClaim
    low, high : float
        Smallest and largest reduction found.
    """
    misses = {
        "up to": [abs(high - claim.high)],
        "at least": [max(0.0, claim.low - low)],
        "from": [abs(low - claim.low), abs(high - claim.high)],
    }[claim.kind]
    if max(misses) <= TOLERANCE:
        return "reproduced"
    return "in part" if high > TOLERANCE else "not reproduced"
