from __future__ import annotations

import pytest

from elastic_dit.reproduce.listed import best_listed, read_listed
from elastic_dit.reproduce.mixed_page import mixed_page
from elastic_dit.reproduce.mixed_priority import (
    OVERLOADED,
    MixedExperiment,
    reproduce_mixed_priority,
)
from elastic_dit.reproduce.plots import draw_mixed
from elastic_dit.reproduce.schema import MixedReport

WORKLOAD = "foreground_burst@1.0"


@pytest.fixture(scope="module")
def report() -> MixedReport:
    small = MixedExperiment(
        profiles=("foreground_burst",), loads=("1.0",), policies=("edf", "elastic"), seeds=(0,)
    )
    return reproduce_mixed_priority(small, processes=1)


def test_elastic_meets_more_deadlines_than_the_best_listed(report: MixedReport) -> None:
    ours = report.mixed_priority[WORKLOAD]["elastic"]
    assert ours.completed == ours.submitted == 79
    assert report.lead[WORKLOAD] >= 0.02
    best = report.listed[WORKLOAD][report.best_listed[WORKLOAD]]
    assert report.lead[WORKLOAD] == ours.attainment - best.attainment


def test_classes_add_up(report: MixedReport) -> None:
    # 44 S, 17 M and 18 L in this workload.
    for figures in report.mixed_priority[WORKLOAD].values():
        met = 44 * figures.S.attainment + 17 * figures.M.attainment + 18 * figures.L.attainment
        assert met / 79 == pytest.approx(figures.attainment)


def test_nearness_is_that_of_the_figures(report: MixedReport) -> None:
    assert set(report.nearness) == {"edf"}
    near = report.nearness["edf"]
    ours, theirs = report.mixed_priority[WORKLOAD]["edf"], report.listed[WORKLOAD][near.listed]
    assert near.listed == "edf_best_fit"
    assert near.attainment == near.attainment_max == abs(ours.attainment - theirs.attainment)
    assert near.max_workload == WORKLOAD
    assert near.mean_s == pytest.approx(ours.mean_s / theirs.mean_s)


def test_listed_figures_are_those_of_the_source() -> None:
    listed = read_listed((0, 1, 2))
    assert len(listed) == 8
    rounded = {
        workload: (best_listed(of), round(of[best_listed(of)].attainment, 2))
        for workload, of in listed.items()
    }
    assert rounded["tridentserve@1.5"] == ("edf_best_fit", 0.88)
    assert rounded["foreground_burst@1.0"] == ("edf_greedy", 0.89)
    assert rounded["foreground_burst@1.5"] == ("srtf_sp2", 0.62)
    below = {workload for workload, (_, attainment) in rounded.items() if attainment < 0.9}
    assert below == set(OVERLOADED)


def test_policies_listed_for_some_seeds_only_are_left_out() -> None:
    listed = read_listed((0, 1, 2))
    for of in listed.values():
        assert all(figures.submitted == of["edf_greedy"].submitted for figures in of.values())


def test_page_and_picture(report: MixedReport) -> None:
    page = mixed_page(report)
    assert f"{100 * report.lead[WORKLOAD]:+.1f} points" in page
    assert "edf_best_fit (listed)" in page
    assert f"| {WORKLOAD} | {report.nearness['edf'].mean_s:.2f} |" in page
    assert len(draw_mixed(report)) < 200_000
    assert MixedReport.model_validate_json(report.model_dump_json()) == report
