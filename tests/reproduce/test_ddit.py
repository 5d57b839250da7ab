from __future__ import annotations

import math
import statistics

import pytest

from elastic_dit.reproduce.claims import TOLERANCE, verdict
from elastic_dit.reproduce.ddit import DditExperiment, queue_optimum, reproduce_ddit
from elastic_dit.reproduce.ddit_page import ddit_page
from elastic_dit.reproduce.ddit_paper import CLAIMS, PaperClaim
from elastic_dit.reproduce.plots import draw_cells, draw_grid
from elastic_dit.reproduce.schema import DditReport

SMALL = DditExperiment(
    mixes=((1, 1, 1), (2, 6, 2)),
    rates=(0.5, None),
    seeds=(0,),
    requests=24,
    policies=("static-1", "static-2", "static-2-decoupled", "ddit", "ddit-no-promotion", "elastic"),
    burst_policies=("static-1", "static-4", "ddit", "elastic"),
)


@pytest.fixture(scope="module")
def report() -> DditReport:
    return reproduce_ddit(SMALL, processes=1)


def test_ratios_are_those_of_the_cells(report: DditReport) -> None:
    cells = report.grid.cells
    assert list(cells) == ["1:1:1@0.5", "1:1:1@burst", "2:6:2@0.5", "2:6:2@burst"]
    ratios = {
        name: cell.policies["elastic"].mean_s / cell.policies["ddit"].mean_s
        for name, cell in cells.items()
    }
    found = report.grid.elastic_vs_ddit.mean
    assert found.max == max(ratios.values()) == ratios[found.max_cell]
    assert found.geomean == pytest.approx(statistics.geometric_mean(ratios.values()))


def test_every_request_is_completed_and_none_beats_the_bound(report: DditReport) -> None:
    for cell in report.grid.cells.values():
        for figures in cell.policies.values():
            assert figures.completed == figures.submitted == 24
            assert figures.mean_s >= cell.mean_bound_s
    assert min(report.grid.mean_vs_bound.values()) >= 1.0


def test_burst_costs_are_over_the_optimum(report: DditReport) -> None:
    burst = report.burst64
    for policy, ratio in burst.cost_vs_optimum.items():
        by_hand = [
            cell.policies[policy].gpu_seconds / cell.optimum_gpu_s for cell in burst.mixes.values()
        ]
        assert ratio == pytest.approx(math.prod(by_hand) ** (1 / len(by_hand)))
    assert min(burst.cost_vs_least.values()) >= 1.0 - 1e-9
    assert burst.cost_vs_optimum["static-4"] > burst.cost_vs_optimum["ddit"]


def test_breakdowns_are_at_the_loads_of_the_paper(report: DditReport) -> None:
    assert [step.cell for step in report.decoupling] == [
        "2:6:2@burst", "1:1:1@burst", "2:6:2@0.5", "1:1:1@0.5",
    ]  # fmt: skip
    assert [step.cell for step in report.promotion] == ["1:1:1@burst", "1:1:1@0.5"]


def test_what_was_not_run_is_not_judged(report: DditReport) -> None:
    assert report.claims
    assert not any("SPCI" in claim.what for claim in report.claims)
    for claim in report.claims:
        assert (claim.why == "") == (claim.verdict == "reproduced")


@pytest.mark.parametrize(
    ("kind", "low", "high", "found"),
    [
        ("up to", -0.5, 0.2 + TOLERANCE / 2, "reproduced"),
        ("up to", 0.0, 0.5, "in part"),
        ("up to", -0.5, 0.01, "not reproduced"),
        ("at least", 0.19, 0.9, "reproduced"),
        ("at least", -0.1, 0.9, "in part"),
        ("from", 0.2, 0.2, "reproduced"),
        ("from", 0.0, 0.2, "in part"),
    ],
)
def test_verdicts(kind: str, low: float, high: float, found: str) -> None:
    claim = PaperClaim(
        where="", what="", metric="mean", others=(), rates=(), low=0.2, high=0.2, why="",
        kind=kind,
    )  # fmt: skip
    assert verdict(claim, low, high) == found


def test_the_default_experiment_has_every_cell_and_every_claim_its_policies() -> None:
    asked = DditExperiment()
    assert len(asked.cells) == 50
    for claim in CLAIMS:
        known = asked.burst_policies if claim.multi_node else asked.policies
        assert {claim.ours, *claim.others} <= set(known)
        assert set(claim.mixes) <= set(asked.mixes)
        assert set(claim.rates) <= set(asked.rates)


def test_the_best_static_dop_is_that_of_the_lowest_mean(report: DditReport) -> None:
    assert set(report.best_static) == {"0.5", "burst"}
    for rate, best in report.best_static.items():
        cells = [cell for name, cell in report.grid.cells.items() if name.endswith(f"@{rate}")]
        one, two = (
            math.prod(cell.policies[f"static-{dop}"].mean_s for cell in cells) for dop in (1, 2)
        )
        assert best.ours == (1 if one < two else 2)
    assert (report.best_static["0.5"].theirs, report.best_static["burst"].theirs) == (2, 1)


def test_eq_7_as_printed_says_less() -> None:
    for forms in queue_optimum().values():
        printed, corrected = forms["printed"], forms["corrected"]
        if printed is not None and corrected is not None:
            assert printed < corrected


def test_page_and_pictures(report: DditReport) -> None:
    page = ddit_page(report)
    assert "24 of each" in page
    assert "means over 1 seed." in page
    ahead = sum(
        cell.policies["ddit"].mean_s < min(cell.policies[f"static-{dop}"].mean_s for dop in (1, 2))
        for cell in report.grid.cells.values()
    )
    assert f"all its baselines in {ahead} of 4 cells" in page
    assert f"{report.grid.elastic_vs_ddit.mean.geomean:.3f}" in page
    for claim in report.claims:
        assert claim.what in page
        assert claim.why in page
    for picture in (draw_grid(report), draw_cells(report)):
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 200_000


def test_the_report_reads_itself(report: DditReport) -> None:
    assert DditReport.model_validate_json(report.model_dump_json()) == report
