"""The predictor and the closed form against the best split found by search, where neither trained.

Every split that a search may still win with is simulated, so the best static split is known; a
choice that the search left out is simulated besides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.examples import Outcome, Situation, best_split
from elastic_dit.predict.split import Split, balanced_split
from elastic_dit.reproduce.parallel import run_all
from elastic_dit.reproduce.predictor_schema import (
    ChoiceFigures,
    PredictorFigures,
    SituationFigures,
)
from elastic_dit.reproduce.static_splits import SplitSearch, measure_split, search_splits

__all__ = ["Choices", "compare", "figures", "summarise"]

_NEARLY = 0.999
"""Part of the best throughput from which two are the same."""


@dataclass(frozen=True, slots=True)
class Choices:
    """One situation, what was chosen in it, and what the splits reached.

    Attributes
    ----------
    name : str
    situation : Situation
    chosen : mapping of str to Split
        By predictor.
    outcomes : mapping of Split to Outcome
        All that was simulated.
    """

    name: str
    situation: Situation
    chosen: Mapping[str, Split]
    outcomes: Mapping[Split, Outcome]


def compare(
    estimator: SplitEstimator,
    named: Sequence[tuple[str, Situation]],
    search: SplitSearch,
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> list[Choices]:
    """Let both choose in each situation, and find out how good that was.

    Parameters
    ----------
    estimator : SplitEstimator
        Fitted, on other situations.
    named : sequence of (str, Situation)
    search : SplitSearch
    processes, done
        As in `run_all`.
    """
    situations = [situation for _, situation in named]
    learned = estimator.predict(situations)
    asked = [
        _Asked(name, situation, {"closed form": _closed(situation), "learned": split})
        for (name, situation), split in zip(named, learned, strict=True)
    ]
    return run_all(partial(_answer, search=search), asked, processes=processes, done=done)


@dataclass(frozen=True, slots=True)
class _Asked:
    name: str
    situation: Situation
    chosen: Mapping[str, Split]


def _closed(situation: Situation) -> Split:
    return balanced_split(situation.workload, situation.gpus)


def _answer(asked: _Asked, search: SplitSearch) -> Choices:
    outcomes = search_splits(asked.situation, search)
    for split in asked.chosen.values():
        if split not in outcomes:
            outcomes[split] = measure_split(asked.situation, split, search)
    return Choices(asked.name, asked.situation, asked.chosen, outcomes)


def figures(choices: Choices) -> SituationFigures:
    """A row of the report."""
    workload = choices.situation.workload
    best = best_split(choices.outcomes)
    least = min(_closed(choices.situation).rates_hz(workload).values())
    return SituationFigures(
        name=choices.name,
        gpus=dict(choices.situation.gpus),
        speeds=dict(workload.speeds),
        demand=workload.rate_hz / least if workload.rate_hz else None,
        stage_seconds={str(stage): workload.stage_seconds[stage] for stage in workload.needed},
        parts=len(workload.mix),
        tried=len(choices.outcomes),
        best=str(best),
        best_throughput_hz=max(each.throughput_hz for each in choices.outcomes.values()),
        best_latency_s=choices.outcomes[best].latency_s,
        chosen={predictor: _choice(choices, split) for predictor, split in choices.chosen.items()},
    )


def _choice(choices: Choices, split: Split) -> ChoiceFigures:
    outcomes, outcome = choices.outcomes, choices.outcomes[split]
    most = max(each.throughput_hz for each in outcomes.values())
    return ChoiceFigures(
        split=str(split),
        throughput=outcome.throughput_hz / most,
        latency=outcome.latency_s / outcomes[best_split(outcomes)].latency_s,
    )


def summarise(rows: Sequence[SituationFigures], predictor: str) -> PredictorFigures:
    """How a predictor fared over all situations."""
    chosen = [row.chosen[predictor] for row in rows]
    throughputs = [each.throughput for each in chosen]
    return PredictorFigures(
        mean_throughput=statistics.fmean(throughputs),
        least_throughput=min(throughputs),
        best_found=statistics.fmean(each >= _NEARLY for each in throughputs),
        mean_latency=statistics.geometric_mean(each.latency for each in chosen),
        worst_latency=max(each.latency for each in chosen),
    )
