"""The predictor of instance ratios on workloads it has not seen, the closed form beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic_dit._version import __version__
from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.storage import load_default
from elastic_dit.reproduce.arrival_cases import forecast_errors, shift_figures
from elastic_dit.reproduce.held_out import compare, figures, summarise
from elastic_dit.reproduce.predictor_schema import PredictorReport, PredictorSetting
from elastic_dit.reproduce.situations import HELD_OUT_SEED, draw_situations, paper_situations
from elastic_dit.reproduce.static_splits import SplitSearch

__all__ = ["PREDICTORS", "PredictorExperiment", "reproduce_predictor"]

PREDICTORS = ("closed form", "learned")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorExperiment:
    """What to run; the default is all of it.

    Attributes
    ----------
    situations : int
        Held-out ones.
    requests : int
        Per simulation.
    seeds : tuple of int
        Of the arrivals.
    moves : int
        The search tries splits that differ from the closed form's in so many GPUs.
    traces : int
        For each kind of arrivals that forecasts and shift detection are held against.
    """

    situations: int = 40
    requests: int = 200
    seeds: tuple[int, ...] = (0, 1)
    moves: int = 2
    traces: int = 50

    @property
    def runs(self) -> int:
        """Situations in all."""
        return self.situations + len(list(paper_situations()))


def reproduce_predictor(
    experiment: PredictorExperiment | None = None,
    *,
    estimator: SplitEstimator | None = None,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> PredictorReport:
    """Run the experiment.

    Parameters
    ----------
    experiment : PredictorExperiment, optional
    estimator : SplitEstimator, optional
        The packaged one by default.
    processes, done
        As in `run_all`; what is counted are situations.
    """
    asked = experiment or PredictorExperiment()
    began = time.perf_counter()
    drawn = draw_situations(asked.situations, HELD_OUT_SEED)
    named = [(f"{number}", situation) for number, situation in enumerate(drawn, start=1)]
    named += paper_situations()
    search = SplitSearch(requests=asked.requests, seeds=asked.seeds, moves=asked.moves)
    choices = compare(estimator or load_default(), named, search, processes=processes, done=done)
    rows = [figures(each) for each in choices]
    held_out, papers = tuple(rows[: len(drawn)]), tuple(rows[len(drawn) :])
    return PredictorReport(
        software=f"elastic-dit {__version__}",
        setting=PredictorSetting(
            situations=asked.situations,
            seed=HELD_OUT_SEED,
            requests=asked.requests,
            arrival_seeds=asked.seeds,
            moves=asked.moves,
        ),
        predictors={name: summarise(held_out, name) for name in PREDICTORS},
        held_out=held_out,
        papers=papers,
        forecasts=forecast_errors(range(asked.traces)),
        shifts=shift_figures(range(asked.traces)),
        wall_seconds=time.perf_counter() - began,
    )
