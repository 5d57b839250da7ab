"""The thresholds: when a stage gets a GPU, and when it gives one up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import Reactive, make_placement
from elastic_dit.request import Stage

from .placement_world import MODEL, WINDOW_S, D, E, Signs, T, World

RATIO = StageRatio(encoder=1, dit=6, decoder=1)
OVERLOADED = Signs(utilisation=0.95, waiting=9, growth=0.5)
IDLE = Signs(utilisation=0.05)


def world(gpus: int = 8, **config: object) -> World:
    settings = PlacementConfig(policy="reactive", ratio=RATIO, **config)  # type: ignore[arg-type]
    there = World(make_placement(settings, [MODEL]))
    there.join(*range(gpus))
    there.look()
    return there


def warm(there: World) -> None:
    """Let the window pass in which nothing is decided."""
    assert there.looks(int(WINDOW_S / 2)) == []


def test_it_begins_with_the_configured_ratio() -> None:
    assert world().ratio == "1:6:1"


@pytest.mark.parametrize(
    "signs",
    [
        Signs(utilisation=0.79, waiting=9, growth=0.5),
        Signs(utilisation=0.95, waiting=5, growth=0.5),
        Signs(utilisation=0.95, waiting=9, growth=0.0),
        Signs(utilisation=0.95, waiting=9, growth=-0.5),
    ],
)
def test_all_three_signs_must_agree(signs: Signs) -> None:
    there = world()
    there.signs = {D: signs, T: Signs(utilisation=0.3, waiting=1)}
    assert there.looks(60) == []


def test_an_overloaded_stage_takes_a_gpu_of_one_that_can_do_without() -> None:
    there = world()
    warm(there)
    there.signs = {D: OVERLOADED, T: Signs(utilisation=0.3, waiting=1)}
    assert there.look() is None
    assert there.look() is None
    plan = there.look()
    assert plan is not None
    assert there.ratio == "1:5:2"
    assert "decoder busy 95%, 9 wait" in plan.reason
    assert "dit busy 30%" in plan.reason


def test_a_stage_that_would_be_overloaded_itself_gives_nothing() -> None:
    there = world()
    there.signs = {D: OVERLOADED, T: Signs(utilisation=0.7)}  # 0.7 * 6 / 5 is above 0.8
    assert there.looks(60) == []


def test_a_queue_that_shrinks_is_none_to_move_gpus_for() -> None:
    there = world()
    warm(there)
    for waiting in range(60, 6, -1):
        there.signs = {D: Signs(0.95, waiting, 0.5), T: Signs(0.3)}
        assert there.look() is None


def test_nothing_is_decided_on_a_window_that_began_before_the_last_change() -> None:
    there = world()
    there.signs = {D: OVERLOADED, T: Signs(utilisation=0.3)}
    there.looks(60)
    times = [at for at, _ in there.plans]
    assert all(later - earlier >= WINDOW_S for earlier, later in itertools.pairwise(times))


def test_an_idle_stage_gives_gpus_up_but_the_last() -> None:
    there = world()
    there.signs = {T: IDLE, E: IDLE, D: IDLE}
    there.looks(400)
    assert there.ratio == "1:1:1"
    there.signs = {T: OVERLOADED}
    there.looks(10)
    assert there.ratio == "1:2:1"


def test_a_stage_somebody_waits_for_is_not_idle() -> None:
    there = world()
    there.signs = {T: Signs(utilisation=0.05, waiting=1)}
    assert there.looks(60) == []


def test_a_machine_is_asked_for_where_no_gpu_can_be_spared_and_one_is_allowed() -> None:
    there = world(max_machines=2)
    there.signs = {T: OVERLOADED, E: Signs(0.9), D: Signs(0.9)}
    plans = there.looks(60)
    assert [plan.nodes for plan in plans] == [2]
    assert "no GPU to spare" in plans[0].reason
    there.join(*range(8, 16), node="n1")
    there.look()
    assert there.ratio == "2:12:2"


def test_no_machine_is_asked_for_where_their_number_is_the_owners() -> None:
    there = world()
    there.signs = {T: OVERLOADED, E: Signs(0.9), D: Signs(0.9)}
    assert there.looks(60) == []


def test_an_idle_machine_is_given_back_whole() -> None:
    there = world(max_machines=2)
    there.join(*range(8, 16), node="n1")
    there.look()
    there.signs = {T: IDLE, E: IDLE, D: IDLE}
    there.looks(400)
    retired = [plan.retire for _, plan in there.plans if plan.retire]
    assert len(retired) == 1
    assert len({gpu.node for gpu in there.gpus.values()}) == 1
    assert there.nodes_wanted == 1
    assert min(there.counts()[stage] for stage in Stage) >= 1


def test_with_fewer_gpus_than_stages_each_holds_all() -> None:
    there = world(2)
    assert there.ratio == "2:2:2"
    there.signs = {T: OVERLOADED}
    assert there.looks(60) == []


def test_a_new_scheduler_carries_on_where_the_last_one_was() -> None:
    there = world()
    warm(there)
    there.signs = {D: OVERLOADED, T: Signs(utilisation=0.3)}
    there.looks(5)
    assert there.ratio == "1:5:2"
    there.signs = {}
    there.policy = world().policy
    assert there.looks(60) == []


SIGNS = st.builds(
    Signs,
    utilisation=st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.85, 1.0]),
    waiting=st.sampled_from([0, 1, 6, 20]),
    growth=st.sampled_from([-1.0, 0.0, 1.0]),
)
STEP = st.tuples(
    st.dictionaries(st.sampled_from(Stage), SIGNS, max_size=3),
    st.sampled_from(["stay", "stay", "stay", "join", "lose"]),
    st.integers(3, 30),
)


@given(st.lists(STEP, max_size=12), st.sampled_from([None, 2, 3]))
@settings(max_examples=40, deadline=None)
def test_it_never_oscillates_loses_a_stage_or_a_gpu(
    steps: list[tuple[dict[Stage, Signs], str, int]], most: int | None
) -> None:
    config = PlacementConfig(policy="reactive", ratio=RATIO, max_machines=most)
    policy = Reactive(config, [MODEL])
    there = World(policy)
    there.join(*range(8))
    last: dict[Stage, tuple[float, int]] = {}
    for signs, event, looks in steps:
        there.signs = signs
        if event == "join":
            first = 100 + 8 * len(there.plans)
            there.join(*range(first, first + 4), node=f"n{first}")
        elif event == "lose":
            there.lose(max(there.gpus))
        members = set(there.gpus)
        for _ in range(looks):
            before = there.counts()
            plan = there.look()
            if plan is None or len(there.gpus) < 3:
                continue
            after = there.counts()
            assert min(after[stage] for stage in Stage) >= 1, plan
            assert set(plan.residency) == set(there.gpus), plan
            assert all(len(keys) <= 1 for keys in plan.residency.values()), plan
            assert sum(after.values()) <= len(there.gpus)
            if most is not None and plan.nodes is not None:
                assert 1 <= plan.nodes <= max(most, len({g.node for g in there.gpus.values()}))
            if "came or went" in plan.reason or members != set(there.gpus):
                members = set(there.gpus)
                last.clear()
                continue
            for stage in Stage:
                way = (after[stage] > before[stage]) - (after[stage] < before[stage])
                if way:
                    at, other = last.get(stage, (-1e9, way))
                    assert way == other or there.now - at >= config.cooldown_s
                    last[stage] = there.now, way
