from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import make_placement
from elastic_dit.control.placement.telemetry import Telemetry, split_in_force
from elastic_dit.predict.split import Split
from elastic_dit.request import Stage

from .placement_world import FOUR_STEPS, MODEL, World, key

RATIO = StageRatio(encoder=1, dit=2, decoder=1)
SPLIT = Split.of({"A10": 1}, {"A10": 2}, {"A10": 1})


@pytest.fixture
def there() -> World:
    world = World(make_placement(PlacementConfig(ratio=RATIO), [MODEL]))
    world.join(*range(4))
    world.look()
    return world


def test_a_quiet_stretch_becomes_an_example(there: World) -> None:
    telemetry = Telemetry(window_s=60.0)
    there.arrive(FOUR_STEPS, 60, every_s=2.0)
    example = None
    for look in range(31):
        seen = replace(there.snapshot(), completed=look, live=6)
        example = telemetry.look(seen)
        assert (example is not None) == (look == 30)
        there.now += 2.0
    assert example is not None
    ((split, outcome),) = example.seen
    assert split == SPLIT
    assert (outcome.throughput_hz, outcome.latency_s) == (0.5, 12.0)
    assert example.situation.gpus == {"A10": 4}
    assert example.situation.workload.rate_hz == pytest.approx(0.5, rel=0.05)


def test_while_a_stage_moves_or_is_shared_there_is_no_split(there: World) -> None:
    assert split_in_force(there.snapshot()) == SPLIT
    usual = there.gpus[0]
    there.gpus[0] = replace(usual, loading=(key(Stage.DECODER),))
    assert split_in_force(there.snapshot()) is None
    both = tuple(key(stage) for stage in (Stage.DIT, Stage.DECODER))
    there.gpus[0] = replace(usual, resident=both, wanted=both)
    assert split_in_force(there.snapshot()) is None


def test_nothing_is_said_of_requests_whose_times_are_not_known(there: World) -> None:
    there.arrive(replace(FOUR_STEPS, seconds={}), 5)
    assert Telemetry(window_s=1.0).look(there.snapshot()) is None
