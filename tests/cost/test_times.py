import pytest

from elastic_dit.cost import CostBook, CostTimes, read_polynomial_cost, read_stage_latencies
from elastic_dit.cost import times as times_module
from elastic_dit.request import Stage
from tests.cost.shapes import opensora, request


def test_a_step_for_the_dit_and_the_whole_of_other_stages() -> None:
    times = CostTimes(read_stage_latencies())
    assert times.seconds(opensora("360p"), Stage.DIT, 4) == pytest.approx(5.55 / 30)
    assert times.seconds(opensora("360p"), Stage.DECODER) == pytest.approx(0.87)
    assert times.seconds(opensora("360p"), Stage.DIT, 4, "H800") == pytest.approx(5.55 / 30)


def test_none_where_nothing_is_known() -> None:
    times = CostTimes(CostBook({"m": read_polynomial_cost()}))
    known = request(832, 480, 49, 50)
    assert times.seconds(known, Stage.DIT, 3) is None
    assert times.seconds(known.model_copy(update={"model": "x"}), Stage.DIT) is None
    assert CostTimes(read_stage_latencies()).seconds(known, Stage.DIT, 1, "T4") is None


def test_requests_that_differ_in_steps_differ_in_no_step() -> None:
    times = CostTimes(read_polynomial_cost())
    short, long = request(832, 480, 49, 5), request(832, 480, 49, 50)
    assert times.seconds(short, Stage.DIT, 2) == times.seconds(long, Stage.DIT, 2)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times_module, "_MOST_REMEMBERED", 3)
    times = CostTimes(read_stage_latencies())
    seconds = [times.seconds(request(64 * n, 64, 9, 4), Stage.DIT) for n in range(1, 9)]
    assert seconds == [times.seconds(request(64 * n, 64, 9, 4), Stage.DIT) for n in range(1, 9)]
    assert len(times._known) <= 3
