"""The estimator: scikit-learn's conventions, and that it learns what it is shown."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

from elastic_dit.errors import ConfigError
from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.examples import Outcome, Situation, best_split
from elastic_dit.predict.features import FEATURES, bound_hz, queueing_s, split_features
from elastic_dit.predict.learned import LearnedRatio
from elastic_dit.predict.split import Split, balanced_split, neighbours
from elastic_dit.request import Stage
from tests.predict.test_balanced import SECONDS, workload_of

Outcomes = dict[Split, Outcome]


def world(blocked: float) -> tuple[list[Situation], list[Outcomes]]:
    """Situations in which all splits serve what comes, and each GPU of the decoder adds this part
    of the service time to latency."""
    situations, outcomes = [], []
    for encoder in (1.0, 2.0, 3.0):
        for dit in (4.0, 7.0, 11.0, 17.0):
            workload = workload_of(encoder, dit, 5.0, rate_hz=0.05)
            situation = Situation(workload, {"": 10})
            service_s = sum(workload.stage_seconds.values())
            seen = {
                split: Outcome(0.05, service_s * (1 + blocked * split.counts[Stage.DECODER]))
                for split in neighbours(balanced_split(workload, situation.gpus), workload, 2)
            }
            situations.append(situation)
            outcomes.append(seen)
    return situations, outcomes


def test_it_is_an_estimator():
    estimator = SplitEstimator(moves=1, margin=0.2)
    twin = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == {"margin": 0.2, "moves": 1, "regressor": None}
    assert twin.set_params(moves=3).moves == 3
    with pytest.raises(NotFittedError):
        estimator.predict(world(0.0)[0])


def test_it_is_fitted_scored_and_cross_validated_like_any_other():
    situations, outcomes = world(0.0)
    estimator = SplitEstimator(Ridge()).fit(situations, outcomes)
    assert estimator.score(situations, outcomes) > 0.999
    scores = cross_val_score(SplitEstimator(Ridge()), situations, outcomes, cv=3)
    assert min(scores) > 0.999


def test_among_equal_throughputs_it_learns_which_waits_less():
    situations, outcomes = world(0.5)
    estimator = SplitEstimator(Ridge(1e-3)).fit(situations, outcomes)
    for situation, split in zip(situations, estimator.predict(situations), strict=True):
        closed = balanced_split(situation.workload, situation.gpus)
        if closed.counts[Stage.DECODER] > 1:
            assert split.counts[Stage.DECODER] < closed.counts[Stage.DECODER]


def test_without_a_gain_above_the_margin_the_closed_form_stands():
    situations, outcomes = world(0.0)
    estimator = SplitEstimator(Ridge()).fit(situations, outcomes)
    for situation, split in zip(situations, estimator.predict(situations), strict=True):
        assert split == balanced_split(situation.workload, situation.gpus)


def test_a_choice_that_was_not_tried_scores_nothing():
    situations, outcomes = world(0.0)
    estimator = SplitEstimator(Ridge()).fit(situations, outcomes)
    other = Split.of({"": 8}, {"": 1}, {"": 1})
    assert estimator.score(situations[:1], [{other: Outcome(1.0, 1.0)}]) == 0.0


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(ConfigError, match="one or more situations"):
        SplitEstimator().fit([], [])


@given(
    st.tuples(SECONDS, SECONDS, SECONDS),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), min_size=1),
    st.floats(0, 100),
)
@settings(max_examples=40, deadline=None)
def test_the_packaged_predictor_is_never_far_from_the_closed_form(seconds, gpus, rate_hz):
    workload = workload_of(*seconds, rate_hz=rate_hz, speeds={"b": 0.5})
    if sum(gpus.values()) < 3:
        with pytest.raises(ConfigError, match="one for each stage"):
            PACKAGED.predict(workload, gpus)
        return
    split = PACKAGED.split(workload, gpus)
    assert sum(split.counts.values()) == sum(gpus.values())
    assert min(split.counts.values()) >= 1
    closed = balanced_split(workload, gpus)
    assert bound_hz(workload, split) >= 0.9 * bound_hz(workload, closed)


PACKAGED = LearnedRatio()


def test_the_packaged_predictor_agrees_with_the_paper():
    four_steps = workload_of(5.45, 73.5, 9.7)
    assert list(PACKAGED.predict(four_steps, {"A10": 8}).values()) == [1, 6, 1]


@settings(deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS), st.floats(0.001, 1000), st.integers(3, 12))
def test_features_do_not_depend_on_the_unit_of_time(seconds, factor, gpus):
    workload = workload_of(*seconds, rate_hz=0.5 / max(seconds))
    scaled = workload_of(*(factor * each for each in seconds), rate_hz=workload.rate_hz / factor)
    split = balanced_split(workload, {"": gpus})
    row = split_features(workload, split)
    assert len(row) == len(FEATURES)
    assert split_features(scaled, split) == pytest.approx(row)


@settings(deadline=None)
@given(st.floats(0.0, 5.0), st.floats(0.1, 10.0), st.floats(0, 3), st.integers(1, 20))
def test_waiting_grows_with_load_and_variation_and_falls_with_servers(rate, seconds, cv, servers):
    wait = queueing_s(rate, seconds, cv, servers)
    assert 0 <= wait <= queueing_s(2 * rate, seconds, cv, servers) + 1e-9
    assert wait <= queueing_s(rate, seconds, cv + 1, servers) + 1e-9
    assert queueing_s(rate, seconds, cv, servers + 1) <= wait + 1e-9


def test_the_best_split_is_that_of_the_examples():
    situations, outcomes = world(1.0)
    for situation, seen in zip(situations, outcomes, strict=True):
        best = bound_hz(situation.workload, best_split(seen))
        assert best >= 0.995 * max(bound_hz(situation.workload, split) for split in seen)


def test_nothing_loads_scikit_learn_before_it_predicts():
    program = (
        "import sys, elastic_dit.predict.learned as learned, elastic_dit.predict.storage;"
        "learned.LearnedRatio(); print('sklearn' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False False"
