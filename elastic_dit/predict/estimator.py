"""The learned part: what a split reaches beside its bound, and so which split is best.

The closed form sees service rates only. How far throughput stays behind the bound
(`elastic_dit.predict.features.bound_hz`), and how long requests wait, is what queues make of them;
the estimator learns both, and leaves the closed form's split only for one that it expects to be
better by a margin.

Importing this module imports scikit-learn, which takes a second: do so where it is used.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from elastic_dit.errors import ConfigError
from elastic_dit.predict.examples import Outcome, Situation, best_split
from elastic_dit.predict.features import FEATURES, bound_hz, split_features
from elastic_dit.predict.split import Split, balanced_split, neighbours
from elastic_dit.predict.workload import Workload, check_gpus

__all__ = ["SplitEstimator"]

_MOST_MOVES = 8
"""Beyond it there are more splits than anyone should ask about every two seconds."""

_Outcomes = Mapping[Split, Outcome]
_Floats = NDArray[np.float64]


class SplitEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator in scikit-learn's sense: situations in, splits out.

    Parameters
    ----------
    regressor : estimator, optional
        Made twice, of the log efficiency and of the log latency (over the seconds of all stages),
        both from `split_features`; a small neural network by default.
    moves : int
        Splits are considered that differ from the closed form's in so many GPUs.
    margin : float
        To leave the closed form's split, another must be expected to serve more by this part, or,
        of those whose bound is no lower, to have a latency that is shorter by it.

    Attributes
    ----------
    efficiency_, latency_ : estimator
        Fitted.
    """

    def __init__(self, regressor: Any = None, moves: int = 2, margin: float = 0.03) -> None:
        self.regressor = regressor
        self.moves = moves
        self.margin = margin

    def fit(self, X: Sequence[Situation], y: Sequence[_Outcomes]) -> Self:  # noqa: N803
        """Learn from what splits reached.

        Parameters
        ----------
        X : sequence of Situation
        y : sequence of mapping of Split to Outcome
            One or more splits in each.

        Raises
        ------
        ConfigError
            Where there is nothing to learn from.
        """
        tried = [
            (situation.workload, split, outcome)
            for situation, outcomes in zip(X, y, strict=True)
            for split, outcome in outcomes.items()
        ]
        if not tried:
            raise ConfigError("X", len(X), "one or more situations with a split tried")
        rows = _rows((workload, split) for workload, split, _ in tried)
        efficiency = [o.throughput_hz / bound_hz(w, split) for w, split, o in tried]
        latency = [o.latency_s / _service_s(w) for w, _, o in tried]
        self.efficiency_ = self._fresh().fit(rows, np.log(efficiency))
        self.latency_ = self._fresh().fit(rows, np.log(latency))
        return self

    def predict(self, X: Sequence[Situation]) -> list[Split]:  # noqa: N803
        """The split expected to be the best, one for each situation.

        Raises
        ------
        ConfigError
            Where a situation has fewer GPUs than stages.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        return [self._choose(situation) for situation in X]

    def score(self, X: Sequence[Situation], y: Sequence[_Outcomes]) -> float:  # noqa: N803
        """Mean of the chosen split's throughput over the highest among those tried.

        A choice that was not tried counts as nothing.
        """
        parts = []
        for split, outcomes in zip(self.predict(X), y, strict=True):
            most = max(outcome.throughput_hz for outcome in outcomes.values())
            parts.append(outcomes[split].throughput_hz / most if split in outcomes else 0.0)
        return statistics.fmean(parts)

    def expect(self, situation: Situation, splits: Sequence[Split]) -> dict[Split, Outcome]:
        """What each split is expected to reach; never more than its bound."""
        workload = situation.workload
        rows = _rows((workload, split) for split in splits)
        efficiency = np.exp(np.minimum(self.efficiency_.predict(rows), 0.0))
        latency = np.exp(self.latency_.predict(rows)) * _service_s(workload)
        return {
            split: Outcome(bound_hz(workload, split) * float(part), float(seconds))
            for split, part, seconds in zip(splits, efficiency, latency, strict=True)
        }

    def is_sound(self) -> bool:
        """Whether it is fitted, for the features of this version, and its parameters make sense."""
        fitted = (getattr(self, "efficiency_", None), getattr(self, "latency_", None))
        known = all(getattr(each, "n_features_in_", 0) == len(FEATURES) for each in fitted)
        return known and self.moves in range(_MOST_MOVES + 1) and 0 <= self.margin < 1

    def _choose(self, situation: Situation) -> Split:
        check_gpus(situation.workload, situation.gpus)
        closed = balanced_split(situation.workload, situation.gpus)
        workload, keeps = situation.workload, 1 - self.margin
        expected = self.expect(situation, list(neighbours(closed, workload, self.moves)))
        best = best_split(expected)
        if keeps * expected[best].throughput_hz > expected[closed].throughput_hz:
            return best
        bound = bound_hz(workload, closed)
        latency = {
            split: outcome.latency_s
            for split, outcome in expected.items()
            if bound_hz(workload, split) >= bound
        }
        fastest = min(latency, key=lambda split: latency[split])
        return fastest if latency[fastest] < keeps * latency[closed] else closed

    def _fresh(self) -> Any:
        return clone(_network() if self.regressor is None else self.regressor)


def _rows(pairs: Any) -> _Floats:
    return np.array([split_features(workload, split) for workload, split in pairs])


def _service_s(workload: Workload) -> float:
    return sum(workload.stage_seconds.values())


def _network() -> Any:
    """Small and smooth, so that neighbours compare; of types that a file may hold, unlike trees."""
    return make_pipeline(
        StandardScaler(),
        MLPRegressor(
            hidden_layer_sizes=(16,), solver="lbfgs", alpha=1.0, max_iter=5000, random_state=0
        ),
    )
