"""The held-out comparison, small."""

from __future__ import annotations

import pytest
from sklearn.linear_model import Ridge

from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.examples import Example, Outcome, Situation
from elastic_dit.predict.split import Split, balanced_split
from elastic_dit.predict.workload import Workload
from elastic_dit.reproduce.arrival_cases import forecast_errors, shift_figures
from elastic_dit.reproduce.held_out import Choices, figures, summarise
from elastic_dit.reproduce.predictor import PredictorExperiment, reproduce_predictor
from elastic_dit.reproduce.predictor_page import predictor_page, verdict
from elastic_dit.reproduce.predictor_schema import PredictorReport
from elastic_dit.reproduce.situations import draw_situations
from elastic_dit.reproduce.static_splits import SplitSearch
from elastic_dit.reproduce.training import fit_examples, simulate_examples
from elastic_dit.request import Stage

SMALL = PredictorExperiment(situations=3, requests=40, seeds=(0,), moves=1, traces=1)
SEARCH = SplitSearch(requests=40, seeds=(0,), moves=1, worth=0.9)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return simulate_examples(draw_situations(4, seed=1), SEARCH, processes=1)


@pytest.fixture(scope="module")
def report(examples) -> PredictorReport:
    told: list[int] = []
    estimator = SplitEstimator(Ridge()).fit(
        [example.situation for example in examples], [dict(example.seen) for example in examples]
    )
    found = reproduce_predictor(SMALL, estimator=estimator, processes=1, done=told.append)
    assert sum(told) == SMALL.runs == 7
    return found


def test_the_report_is_about_what_was_asked(report):
    assert [row.name for row in report.held_out] == ["1", "2", "3"]
    assert len(report.papers) == 4
    for row in (*report.held_out, *report.papers):
        assert max(choice.throughput for choice in row.chosen.values()) <= 1.0
        assert set(row.chosen) == set(report.predictors) == {"closed form", "learned"}
    assert PredictorReport.model_validate_json(report.model_dump_json()) == report


def test_the_page_has_every_figure(report):
    page = predictor_page(report)
    assert verdict(report) in page
    for row in report.held_out:
        assert f"| {row.name} | " in page
    assert "rate doubled" in page
    assert "waves" in page


def test_the_verdict_says_who_wins(report):
    closed = report.predictors["closed form"]
    learned = closed.model_copy(update={"mean_latency": 2 * closed.mean_latency})
    worse = report.model_copy(update={"predictors": {"closed form": closed, "learned": learned}})
    assert "closed form is as good, and simpler" in verdict(worse)
    learned = closed.model_copy(update={"mean_latency": 0.5 * closed.mean_latency})
    better = report.model_copy(update={"predictors": {"closed form": closed, "learned": learned}})
    assert "50.0% off" in verdict(better)
    poor = closed.model_copy(update={"mean_throughput": 0.5})
    worse = report.model_copy(update={"predictors": {"closed form": closed, "learned": poor}})
    assert "does not reach 97%" in verdict(worse)


def test_ratios_are_over_the_best_split():
    workload = Workload(rate_hz=0.0, stage_seconds=dict.fromkeys(Stage, 1.0))
    situation = Situation(workload, {"": 4})
    closed, other = balanced_split(workload, {"": 4}), Split.of({"": 1}, {"": 2}, {"": 1})
    outcomes = {closed: Outcome(0.8, 30.0), other: Outcome(1.0, 20.0)}
    row = figures(Choices("x", situation, {"closed form": closed, "learned": other}, outcomes))
    assert (row.best, row.demand) == ("1:2:1", None)
    assert row.chosen["closed form"].throughput == 0.8
    assert row.chosen["closed form"].latency == 1.5
    assert summarise([row], "learned").best_found == 1.0
    assert summarise([row], "closed form").best_found == 0.0


def test_training_is_repeatable(examples):
    situations = [example.situation for example in examples]
    first, second = fit_examples(examples), fit_examples(examples)
    splits = [split for split, _ in examples[0].seen]
    assert first.expect(situations[0], splits) == second.expect(situations[0], splits)


def test_forecasts_are_compared_with_the_last_count():
    errors = forecast_errors(range(3))
    assert all(by_name["last"] == 1.0 for by_name in errors.values())
    assert errors["steady"]["slow"] < 0.9


def test_shifts_that_are_there_are_noticed():
    found = shift_figures(range(2))
    assert found["30 steps to 2"].most_requests == 4
    assert found["4 steps, no shift"].median_requests is None
