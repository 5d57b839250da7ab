"""Fixed instances: layouts, routing, coupling."""

from __future__ import annotations

import pytest

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, make_dispatch
from elastic_dit.control.policies.layouts import EqualUnits, RatioUnits, SameUnits
from elastic_dit.cost import CostTimes, read_stage_latencies
from elastic_dit.request import Stage
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.ddit_grid import MODEL, Cell
from elastic_dit.simulate.outcome import SimulationResult
from elastic_dit.state import Phase
from tests.control.bench import Bench
from tests.control.storm import run_storm

NAMES = [
    *(f"static-{dop}{kind}" for dop in (1, 2, 4, 8) for kind in ("", "-decoupled")),
    "spci",
    "dpci",
    "dp",
]


def run(name: str, cell: Cell, count: int = 40) -> SimulationResult:
    cost = read_stage_latencies()
    controller = Controller(ControlConfig(), make_dispatch(name), times=CostTimes(cost))
    cluster = VirtualCluster(controller, cost)
    cluster.add_node("n0", gpus=8, models=[MODEL])
    cluster.submit(cell.arrivals(seed=1, count=count))
    result = cluster.run()
    assert controller.refused == 0, list(controller.decisions)[-1]
    return result


def test_same_units_are_the_whole_aligned_blocks() -> None:
    units = SameUnits(2).units([0, 1, 2, 3, 5, 6, 7], 8)
    assert [unit.block.gpus for unit in units] == [(0, 1), (2, 3), (6, 7)]


def test_equal_units_have_one_of_each_kind_on_eight_gpus() -> None:
    units = EqualUnits((1, 2, 4)).units(range(8), 8)
    assert [(unit.kind, unit.block.gpus) for unit in units] == [
        (4, (0, 1, 2, 3)),
        (2, (4, 5)),
        (1, (6,)),
    ]
    assert len(EqualUnits((1, 2, 4)).units(range(64), 8)) == 27


@pytest.mark.parametrize(
    ("shares", "counts"),
    [
        ((1, 1, 1), [3, 3, 2]),
        ((6, 1, 3), [5, 1, 2]),
        ((1, 3, 6), [1, 2, 5]),
        ((98, 1, 1), [6, 1, 1]),
    ],
)
def test_ratio_units_follow_the_mix(shares: tuple[int, ...], counts: list[int]) -> None:
    layout = RatioUnits(dict(zip((1, 2, 4), shares, strict=True)))
    kinds = [unit.kind for unit in layout.units(range(8), 8)]
    assert [kinds.count(kind) for kind in (1, 2, 4)] == counts


@pytest.mark.parametrize("name", NAMES)
def test_every_request_runs_at_the_dop_of_its_units(name: str) -> None:
    result = run(name, Cell((1, 1, 1), 0.5))
    assert all(outcome.phase is Phase.COMPLETED for outcome in result.requests)
    dops = {
        (outcome.label, len(record.gpus))
        for outcome in result.requests
        for record in outcome.records
        if record.stage is Stage.DIT and record.seconds > 0
    }
    if name.startswith("static"):
        assert {dop for _, dop in dops} == {int(name.split("-")[1])}
    elif name == "spci":
        assert dops == {("144p", 1), ("240p", 1), ("360p", 1)}
    elif name == "dpci":
        assert dops == {("144p", 1), ("240p", 2), ("360p", 4)}
    else:
        assert {dop for _, dop in dops} == {1, 2, 4}
        assert ("360p", 2) in dops


def test_coupled_units_decode_on_all_their_gpus_and_decoupled_on_one() -> None:
    for name, dop in (("static-2", 2), ("static-2-decoupled", 1)):
        result = run(name, Cell((1, 1, 1), 0.5))
        decodes = {
            len(record.gpus)
            for outcome in result.requests
            for record in outcome.records
            if record.stage is Stage.DECODER
        }
        assert decodes == {dop}


def test_static_dop_1_is_best_in_a_burst_and_wide_units_when_it_is_quiet() -> None:
    def mean(name: str, rate: float | None) -> float:
        latencies = run(name, Cell((1, 1, 1), rate)).latencies_s()
        return sum(latencies) / len(latencies)

    assert mean("static-1", None) < mean("static-2", None) < mean("static-4", None)
    assert mean("static-4", 0.1) < mean("static-2", 0.1) < mean("static-1", 0.1)


def without_decoders() -> Bench:
    """Two units of two GPUs, nobody to decode, `a` and `b` at work and `c` in line."""
    bench = Bench(make_dispatch("static-2"))
    bench.join(0, 1, 2, 3, stages=(Stage.ENCODER, Stage.DIT))
    for name in "abc":
        bench.submit(name)
    for name in "abc":
        bench.done(name)
    assert [bench.gpus[name] for name in "ab"] == [(0, 1), (2, 3)]
    assert bench.starts["c"].stage is Stage.ENCODER
    return bench


def test_a_unit_waits_for_its_requests_decode() -> None:
    bench = without_decoders()
    bench.done("a")
    assert bench.starts["c"].stage is Stage.ENCODER
    bench.cancel("a")
    assert (bench.starts["c"].stage, bench.gpus["c"]) == (Stage.DIT, (0, 1))


def test_units_are_laid_out_anew_where_gpus_are_lost_and_come_back() -> None:
    bench = without_decoders()
    bench.lose(1)  # a survives on GPU 0 alone
    bench.done("b")
    assert bench.starts["c"].stage is Stage.ENCODER  # the unit of b waits for its decode
    bench.cancel("b")
    assert (bench.starts["c"].stage, bench.gpus["c"]) == (Stage.DIT, (2, 3))
    bench.submit("d")
    bench.join(8, 9, node="other", stages=(Stage.ENCODER, Stage.DIT))
    bench.done("d")
    assert (bench.starts["d"].stage, bench.gpus["d"]) == (Stage.DIT, (8, 9))


@pytest.mark.parametrize("name", ["static-2", "static-2-decoupled", "spci", "dpci", "dp"])
def test_a_storm_loses_nothing(name: str) -> None:
    storm = run_storm(1, 400, make_dispatch(name))
    assert storm.terminal
