import pytest

from elastic_dit.cost import (
    CostBook,
    LatencyLaw,
    LawCost,
    optimal_dop,
    read_stage_latencies,
    step_time_cuts,
)
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from tests.cost.shapes import opensora

FIGURE_8 = {
    "144p": {2: -0.14, 4: -0.07, 8: -0.02},
    "240p": {2: 0.45, 4: 0.20, 8: -0.07},
    "360p": {2: 0.46, 4: 0.47, 8: 0.34},
}


@pytest.mark.parametrize("resolution", FIGURE_8)
def test_cuts_of_figure_8(resolution: str) -> None:
    cost = read_stage_latencies()
    steps = {dop: cost.step_seconds(opensora(resolution), dop) for dop in (1, 2, 4, 8)}
    cuts = step_time_cuts(steps)
    assert {dop: round(cut, 2) for dop, cut in cuts.items()} == FIGURE_8[resolution]


@pytest.mark.parametrize(("resolution", "best"), [("144p", 1), ("240p", 2), ("360p", 4)])
def test_optimal_dop_of_the_paper(resolution: str, best: int) -> None:
    assert optimal_dop(read_stage_latencies(), opensora(resolution)) == best


def test_optimal_dop_keeps_to_what_a_node_has() -> None:
    assert optimal_dop(read_stage_latencies(), opensora("360p"), most=2) == 2
    assert optimal_dop(read_stage_latencies(), opensora("360p"), most=1) == 1


def test_a_dop_without_its_half_has_no_cut() -> None:
    assert step_time_cuts({1: 4.0, 4: 1.0, 8: 0.5}) == {8: 0.5}


def test_a_book_answers_by_model() -> None:
    law = LawCost({Stage.DIT: LatencyLaw(rate=1e6, bandwidth=1e9, overhead_s=0.1)}, dops=(1, 2))
    request = opensora("144p")
    book = CostBook({"m": law})
    for dop in book.allowed_dops(request):
        assert book.step_seconds(request, dop) == law.step_seconds(request, dop)
        assert book.stage_seconds(request, Stage.DIT, dop) == 30 * law.step_seconds(request, dop)
    with pytest.raises(ConfigError, match=r"model = 'x': must be a profiled model \(m\)"):
        book.allowed_dops(request.model_copy(update={"model": "x"}))
