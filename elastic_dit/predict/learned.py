"""The learned predictor, ready for use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from elastic_dit.predict.examples import Situation
from elastic_dit.predict.split import Split
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage

if TYPE_CHECKING:
    from elastic_dit.predict.estimator import SplitEstimator

__all__ = ["LearnedRatio"]


class LearnedRatio:
    """A `elastic_dit.predict.workload.RatioPredictor` of a fitted estimator.

    scikit-learn is imported with the first prediction.

    Parameters
    ----------
    estimator : SplitEstimator, optional
        The one that ships with the package by default.
    """

    def __init__(self, estimator: SplitEstimator | None = None) -> None:
        self._estimator = estimator
        self._name = "packaged" if estimator is None else type(estimator).__name__

    def __repr__(self) -> str:
        return f"LearnedRatio({self._name})"

    def predict(self, workload: Workload, gpus: Mapping[str, int]) -> Mapping[Stage, int]:
        """See `elastic_dit.predict.workload.RatioPredictor`."""
        return self.split(workload, gpus).counts

    def split(self, workload: Workload, gpus: Mapping[str, int]) -> Split:
        """Which kinds of GPU each stage should have.

        Raises
        ------
        ConfigError
            As `predict`.
        """
        if self._estimator is None:
            from elastic_dit.predict.storage import load_default

            self._estimator = load_default()
        return self._estimator.predict([Situation(workload, gpus)])[0]
