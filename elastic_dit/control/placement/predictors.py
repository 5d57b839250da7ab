"""Predictors of instance counts by name."""

from __future__ import annotations

from elastic_dit.predict.balanced import BalancedRatio
from elastic_dit.predict.learned import LearnedRatio
from elastic_dit.predict.workload import RatioPredictor

__all__ = ["make_predictor"]


def make_predictor(name: str) -> RatioPredictor:
    """A predictor as `PlacementConfig.predictor` names it.

    Parameters
    ----------
    name : str
        ``balanced``, the closed form; ``learned``, the one that ships with the package; else the
        file of another.

    Raises
    ------
    ConfigError
        Where there is no such file, or it holds no predictor.

    Examples
    --------
    >>> make_predictor("balanced"), make_predictor("learned")
    (BalancedRatio(), LearnedRatio(packaged))
    """
    if name == "balanced":
        return BalancedRatio()
    if name == "learned":
        return LearnedRatio()
    from elastic_dit.predict.storage import load_estimator  # imports scikit-learn

    return LearnedRatio(load_estimator(name))
