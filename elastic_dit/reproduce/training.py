"""How the predictor that ships with the package is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.examples import Example, Situation
from elastic_dit.reproduce.parallel import run_all
from elastic_dit.reproduce.static_splits import SplitSearch, search_splits

__all__ = ["TRAINING", "fit_examples", "simulate_examples"]

TRAINING = SplitSearch(requests=150, seeds=(0,), moves=2, worth=0.93)
"""Also splits that cannot win are tried, so that the estimator knows what they cost. The seed is
that of the first situation, the next has the next: many short runs teach more than few long."""


def simulate_examples(
    situations: Sequence[Situation],
    search: SplitSearch = TRAINING,
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> list[Example]:
    """What a search finds in each situation.

    Parameters
    ----------
    situations : sequence of Situation
    search : SplitSearch
    processes, done
        As in `run_all`.
    """
    numbered = list(enumerate(situations))
    return run_all(partial(_example, search=search), numbered, processes=processes, done=done)


def fit_examples(examples: Sequence[Example]) -> SplitEstimator:
    """An estimator of default parameters, fitted to examples, simulated or recorded or both.

    Raises
    ------
    ConfigError
        Where there are none.
    """
    situations = [example.situation for example in examples]
    return SplitEstimator().fit(situations, [dict(example.seen) for example in examples])


def _example(numbered: tuple[int, Situation], search: SplitSearch) -> Example:
    number, situation = numbered
    own = replace(search, seeds=tuple(seed + number for seed in search.seeds))
    return Example(situation, tuple(search_splits(situation, own).items()))
