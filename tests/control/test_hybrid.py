"""Prediction when the workload changes, the rules in between."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import Hybrid, make_placement
from elastic_dit.control.placement.demand import workload_of
from elastic_dit.control.placement.regime import Regime
from elastic_dit.errors import ConfigError
from elastic_dit.predict.workload import Workload
from elastic_dit.request import Stage

from .placement_world import FOUR_STEPS, MODEL, ONE_STEP, D, E, Signs, T, World, shape

RATIO = StageRatio(encoder=1, dit=6, decoder=1)


def world(gpus: int = 8, **config: object) -> World:
    settings = PlacementConfig(policy="hybrid", ratio=RATIO, **config)  # type: ignore[arg-type]
    there = World(make_placement(settings, [MODEL]))
    there.join(*range(gpus))
    return there


def shifted(there: World) -> None:
    """15 minutes of 4-step requests, then a few of 1 step."""
    there.arrive(FOUR_STEPS, 90, every_s=10.0)
    there.looks(450)
    there.arrive(ONE_STEP, 3, every_s=10.0)


def test_a_shift_moves_gpus_within_seconds_of_the_second_request() -> None:
    there = world()
    shifted(there)
    assert there.ratio == "1:6:1"
    there.looks(8)
    assert there.ratio == "2:4:2"
    assert "workload changed, 12.37 instead of 6.19 per minute" in there.plans[-1][1].reason


def test_the_rules_are_skipped_at_a_look_that_predicts() -> None:
    there = world(cooldown_s=0.0, confirm_looks=1)
    shifted(there)
    there.signs = {E: Signs(1.0, 20, 1.0), T: Signs(0.1)}
    plans = there.looks(8)
    assert "workload changed" in plans[0].reason


def test_a_gain_that_does_not_pay_for_the_loads_moves_nothing() -> None:
    there = world(earn_back_s=1.0)
    there.loads = dict.fromkeys(Stage, 1000.0)
    shifted(there)
    there.looks(100)
    assert there.ratio == "1:6:1"


def test_new_gpus_are_put_where_the_workload_needs_them() -> None:
    there = world()
    there.arrive(FOUR_STEPS, 8, every_s=10.0)
    there.looks(45)
    there.join(*range(8, 16), node="n1")
    there.look()
    assert there.ratio == "1:13:2"


def test_the_rules_do_not_undo_what_the_stage_times_say() -> None:
    there = world()
    there.arrive(FOUR_STEPS, 8, every_s=10.0)
    there.looks(60)
    # A queue left over from a burst; by the stage times 2:5:1 serves less than 1:6:1.
    there.signs = {E: Signs(1.0, 20, 1.0), T: Signs(0.2)}
    assert there.looks(60) == []
    there.signs = {T: Signs(0.1), E: Signs(0.1), D: Signs(0.1)}
    assert there.looks(60) == []


def test_times_that_are_not_known_leave_the_rules_alone() -> None:
    there = world()
    there.arrive(shape(1.0, 1.0, 1.0, kinds=()), 20)
    there.looks(30)
    assert there.ratio == "1:6:1"
    there.signs = {D: Signs(1.0, 20, 1.0), T: Signs(0.2)}
    there.looks(10)
    assert there.ratio == "1:5:2"


def test_stages_that_take_no_time_keep_a_gpu() -> None:
    there = world()
    there.arrive(shape(0.0, 10.0, 1.0), 8, every_s=2.0)
    there.looks(60)
    assert min(there.counts()[stage] for stage in Stage) == 1
    assert sum(there.counts().values()) == 8


def test_a_new_scheduler_carries_on_where_the_last_one_was() -> None:
    there = world()
    shifted(there)
    there.looks(10)
    assert there.ratio == "2:4:2"
    first, there.policy = there.policy, world().policy
    assert there.looks(100) == []
    # And back: what another planned meanwhile is not undone.
    there.signs = {}
    there.join(8)
    there.look()
    ratio = there.ratio
    there.policy = first
    assert there.looks(100) == []
    assert there.ratio == ratio


class Fixed:
    def predict(self, workload: Workload, gpus: object) -> dict[Stage, int]:
        return {E: 3, T: 3, D: 2}


def test_a_predictor_of_ones_own() -> None:
    config = PlacementConfig(policy="hybrid", ratio=RATIO)
    there = World(Hybrid(config, [MODEL], Fixed()))
    there.join(*range(8))
    there.arrive(shape(10.0, 10.0, 10.0), 8)
    there.looks(60)
    assert there.ratio == "3:3:2"


def test_predictors_are_configured_by_name_or_file(tmp_path: Path) -> None:
    learned = make_placement(PlacementConfig(policy="hybrid", predictor="learned"), [MODEL])
    assert "LearnedRatio" in repr(learned)
    with pytest.raises(ConfigError, match="predictor"):
        make_placement(PlacementConfig(policy="hybrid", predictor=str(tmp_path / "x")), [MODEL])


def test_a_shadow_is_told_of_and_not_obeyed() -> None:
    there = world(shadow="balanced")
    shifted(there)
    there.looks(8)
    assert "shadow agrees with 2:4:2" in there.plans[-1][1].reason


def test_a_workload_on_two_kinds_of_gpu_has_speeds() -> None:
    there = world(0)
    there.join(0, 1, kind="A10")
    there.join(2, kind="H100")
    both = shape(6.0, 60.0, 6.0, kinds=("A10", "H100"))
    both.seconds["H100"].update({T: 24.0, E: 6.0, D: 6.0})
    there.now = 10.0
    there.arrive(both, 2)
    there.now = 20.0
    snapshot = there.snapshot()
    workload = workload_of(snapshot, snapshot.arrivals)
    assert workload is not None
    assert workload.stage_seconds[T] == 60.0
    assert workload.rate_hz == pytest.approx(0.2)
    assert workload.speeds["H100"] == pytest.approx(2.0)


def test_a_mix_of_known_requests_is_no_change() -> None:
    there = world()
    regime = Regime()
    there.now = 0.0
    for number in range(200):
        there.arrive(ONE_STEP if number % 3 else FOUR_STEPS)
        there.now += 5.0
        changed = regime.changed(there.snapshot())
        assert changed is (number == 2), number


def test_requests_that_came_before_their_times_were_known_count_once_they_are() -> None:
    there = world()
    regime = Regime()
    later = shape(5.45, 73.5, 9.7)
    later.seconds.clear()
    there.arrive(later, 18)
    assert regime.changed(there.snapshot())
    later.seconds["A10"] = FOUR_STEPS.seconds["A10"]
    assert not regime.changed(there.snapshot())
    there.arrive(ONE_STEP, 2)
    assert regime.changed(there.snapshot())


def test_times_that_never_become_known_are_not_waited_for() -> None:
    there = world()
    regime = Regime()
    there.arrive(shape(1.0, 1.0, 1.0, kinds=()))
    there.arrive(FOUR_STEPS, 50)
    assert regime.changed(there.snapshot())
    there.arrive(ONE_STEP, 2)
    assert regime.changed(there.snapshot())


@given(
    st.lists(
        st.tuples(st.sampled_from([FOUR_STEPS, ONE_STEP]), st.integers(1, 30)),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=20, deadline=None)
def test_predictions_keep_the_cool_down_and_every_gpu(
    phases: list[tuple[object, int]],
) -> None:
    there = world()
    for of, count in phases:
        there.arrive(of, count, every_s=4.0)  # type: ignore[arg-type]
        there.looks(2 * count)
        assert sum(there.counts().values()) == 8
        assert min(there.counts()[stage] for stage in Stage) >= 1
    changes = [at for at, plan in there.plans if "changed" in plan.reason]
    for earlier, later in pairwise(changes):
        assert later - earlier >= PlacementConfig().cooldown_s
