from collections import Counter

import pytest

from elastic_dit.simulate.ddit_grid import (
    MIXES,
    MULTI_NODE,
    RATES_PER_S,
    SEEDS,
    SINGLE_NODE,
    Cell,
    cells,
)


def test_the_grid_has_fifty_cells_of_one_hundred_requests() -> None:
    grid = list(cells())
    assert len(grid) == len(set(grid)) == 50
    assert {cell.rate_per_s for cell in grid} == {*RATES_PER_S, None}
    assert len(set(MIXES)) == 10
    assert len(SEEDS) == 5
    for cell in grid:
        assert len(cell.arrivals(seed=0)) == 100
    assert (SINGLE_NODE.gpus, MULTI_NODE.gpus) == (8, 64)


@pytest.mark.parametrize("mix", MIXES)
def test_a_cell_keeps_its_mix(mix: tuple[int, int, int]) -> None:
    found = Counter(arrival.label for arrival in Cell(mix, None).arrivals(seed=1))
    for size, share in zip(("144p", "240p", "360p"), mix, strict=True):
        assert abs(found[size] - 100 * share / sum(mix)) < 1


def test_rates_of_one_mix_bring_the_same_requests() -> None:
    slow, fast = (Cell((1, 1, 1), rate).arrivals(seed=3) for rate in (0.25, 1.0))
    assert [a.request for a in slow] == [a.request for a in fast]
    assert [a.at_s for a in slow] == pytest.approx([4 * a.at_s for a in fast])
    assert slow != Cell((1, 1, 1), 0.25).arrivals(seed=4)
