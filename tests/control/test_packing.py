"""Stages that share GPUs: the integer programme, and the policy around it."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import Packed, make_placement
from elastic_dit.control.placement.packing import (
    Demand,
    PackGpu,
    StageNeed,
    pack,
    throughput_hz,
)
from elastic_dit.cost import fits
from elastic_dit.request import Stage, StageKey

from .placement_world import FOUR_STEPS, GB, MODEL, ONE_STEP, D, E, Signs, T, World, key, shape

RATIO = StageRatio(encoder=1, dit=6, decoder=1)


def need(seconds: float, weights: int | None = 1, **fields: object) -> StageNeed:
    return StageNeed(seconds={"": seconds}, weights_bytes=weights, **fields)  # type: ignore[arg-type]


def gpus(count: int, memory: int = 24) -> list[PackGpu]:
    return [PackGpu(gpu=gpu, memory_bytes=memory) for gpu in range(count)]


SMALL = st.integers(1, 9).map(float)


@given(st.tuples(SMALL, SMALL, SMALL), st.integers(3, 4), st.integers(1, 24))
@settings(max_examples=25, deadline=None)
def test_no_exclusive_split_serves_more(
    seconds: tuple[float, float, float], count: int, weights: int
) -> None:
    needs = {key(stage): need(each, weights) for stage, each in zip(Stage, seconds, strict=True)}
    demand = Demand(needs=needs)
    best = pack(gpus(count), demand)
    assert best is not None
    split = pack(gpus(count), Demand(needs=needs, together=1))
    assert split is not None
    by_hand = max(
        min(counts[i] / seconds[i] for i in range(3))
        for counts in product(range(1, count), repeat=3)
        if sum(counts) == count
    )
    # What a move costs may keep the last hundredth of a request from being worth it.
    assert split.throughput_hz == pytest.approx(by_hand, rel=0.02)
    assert best.throughput_hz >= 0.98 * split.throughput_hz
    assert best.throughput_hz <= count / sum(seconds) + 1e-6
    assert throughput_hz(gpus(count), demand, best.residency) == pytest.approx(best.throughput_hz)
    for keys in best.residency.values():
        assert len(keys) <= 1 or len(keys) * weights <= 24


def test_a_move_that_does_not_earn_back_its_load_is_not_made() -> None:
    held = [
        PackGpu(gpu=gpu, memory_bytes=24, held=frozenset({key(stage)}))
        for gpu, stage in enumerate([E, T, T, D])
    ]
    for load_s, moves in ((1.0, True), (10_000.0, False)):
        needs = {
            key(E): need(1.0, 20, load_s=load_s),
            key(T): need(2.0, 20, load_s=load_s),
            key(D): need(4.0, 20, load_s=load_s),
        }
        found = pack(held, Demand(needs=needs, earn_back_s=300.0))
        assert found is not None
        changed = [gpu for gpu in held if found.residency[gpu.gpu] != gpu.held]
        assert bool(changed) is moves
        assert found.load_s == load_s * len(changed)


def test_of_gpus_that_are_alike_one_that_is_free_soonest_changes() -> None:
    held = [
        PackGpu(gpu=gpu, memory_bytes=24, held=frozenset({key(T)}), free_in_s=free)
        for gpu, free in enumerate([50.0, 3.0, 20.0])
    ]
    held += [PackGpu(gpu=gpu, held=frozenset({key(s)})) for gpu, s in ((3, E), (4, D))]
    seconds = {E: 1.0, T: 1.0, D: 2.0}
    needs = {key(stage): need(each, 20, load_s=1.0) for stage, each in seconds.items()}
    found = pack(held, Demand(needs=needs))
    assert found is not None
    assert [gpu.gpu for gpu in held if found.residency[gpu.gpu] != gpu.held] == [1]


def test_each_kind_of_gpu_does_what_it_is_good_at() -> None:
    mixed = [PackGpu(gpu=gpu, kind=kind, memory_bytes=24) for gpu, kind in enumerate("aabb")]
    needs = {
        key(E): StageNeed(seconds={"a": 1.0, "b": 1.0}, weights_bytes=20),
        key(T): StageNeed(seconds={"a": 2.0, "b": 20.0}, weights_bytes=20),
        key(D): StageNeed(seconds={"a": 1.0, "b": 1.0}, weights_bytes=20),
    }
    found = pack(mixed, Demand(needs=needs))
    assert found is not None
    assert [found.residency[gpu] for gpu in (0, 1)] == [{key(T)}] * 2


def test_what_is_not_known_to_fit_stands_alone() -> None:
    for weights, memory in ((None, 24), (1, 0)):
        needs = {key(stage): need(1.0, weights) for stage in Stage}
        found = pack(gpus(6, memory), Demand(needs=needs))
        assert found is not None
        assert all(len(keys) == 1 for keys in found.residency.values())
        assert pack(gpus(2, memory), Demand(needs=needs)) is None


def test_a_stage_that_fails_everywhere_leaves_the_rest_served() -> None:
    unable = frozenset({key(E)})
    broken = [PackGpu(gpu=gpu, memory_bytes=24, unable=unable) for gpu in range(4)]
    found = pack(broken, Demand(needs={key(stage): need(1.0) for stage in Stage}))
    assert found is not None
    held = frozenset().union(*found.residency.values())
    assert held == {key(T), key(D)}


# ------------------------------------------------------------------------------------ policy
def world(gpus: int = 8, memory: int = 24 * GB, **config: object) -> World:
    settings = PlacementConfig(policy="hybrid", exclusive=False, ratio=RATIO, **config)  # type: ignore[arg-type]
    there = World(make_placement(settings, [MODEL]))
    there.join(*range(gpus), memory=memory)
    return there


def held_by(there: World) -> list[str]:
    return sorted("".join(str(k.stage)[:2] for k in gpu.resident) for gpu in there.gpus.values())


def test_it_begins_with_one_stage_each_and_packs_once_it_knows_the_work() -> None:
    there = world()
    there.look()
    assert there.ratio == "1:6:1"
    there.arrive(FOUR_STEPS, 4)
    there.looks(20)
    assert "up to 5.41 instead of 4.90 per minute" in there.plans[-1][1].reason
    assert held_by(there) == ["dedi"] * 7 + ["deen"]
    there.arrive(FOUR_STEPS, 40, every_s=10.0)
    there.looks(200)
    there.arrive(ONE_STEP, 4, every_s=5.0)
    there.looks(20)
    assert "up to 14.3" in there.plans[-1][1].reason
    assert held_by(there) == ["dedi"] * 6 + ["deen"] * 2


def test_where_all_fits_no_gpu_is_kept_from_the_longest_stage() -> None:
    there = world(memory=80 * GB)
    there.arrive(shape(1.0, 100.0, 1.0), 4)
    there.looks(20)
    assert all("di" in each for each in held_by(there))
    # An encoder's weights take 8 s to load, more than another place for it is worth.
    assert there.counts()[E] == 1


def test_a_stage_that_falls_behind_brings_another_machine() -> None:
    there = world(max_machines=2)
    there.arrive(FOUR_STEPS, 4)
    there.looks(40)
    there.signs = {T: Signs(utilisation=1.0, waiting=9, growth=1.0)}
    there.looks(60)
    assert there.nodes_wanted == 2
    there.join(*range(8, 16), node="n1")
    there.looks(2)
    assert "10.8" in there.plans[-1][1].reason
    there.signs = dict.fromkeys(Stage, Signs(utilisation=0.0))
    there.looks(60)
    assert there.nodes_wanted == 1
    assert len({gpu.node for gpu in there.gpus.values()}) == 1
    assert min(there.counts()[stage] for stage in Stage) >= 1


def test_while_every_gpu_is_away_there_is_nothing_to_decide() -> None:
    there = world()
    there.arrive(FOUR_STEPS, 4)
    there.looks(20)
    for gpu in tuple(there.gpus):
        there.lose(gpu)
    there.signs = dict.fromkeys(Stage, Signs(utilisation=0.0))
    assert not there.looks(60)
    there.join(*range(8))
    assert there.looks(2)


def test_a_new_scheduler_carries_on_where_the_last_one_was() -> None:
    there = world()
    there.arrive(FOUR_STEPS, 4)
    there.looks(20)
    before = held_by(there)
    there.policy = world().policy
    assert there.looks(60) == []
    assert held_by(there) == before


LOADS = st.tuples(*[st.floats(0.5, 60.0)] * 3)
BYTES = st.tuples(*[st.one_of(st.none(), st.integers(0, 30))] * 3)


@given(
    st.lists(
        st.tuples(LOADS, st.booleans(), st.sampled_from(["stay", "join", "lose"])), max_size=4
    ),
    BYTES,
    st.integers(3, 8),
    st.sampled_from([0, 16, 24, 80]),
)
@settings(max_examples=20, deadline=None)
def test_never_over_memory_nor_without_a_stage_and_no_change_within_the_cool_down(
    steps: list[tuple[tuple[float, float, float], bool, str]],
    weights: tuple[int | None, int | None, int | None],
    count: int,
    memory: int,
) -> None:
    there = world(count, memory * GB)
    there.weights = {
        stage: None if each is None else each * GB
        for stage, each in zip(Stage, weights, strict=True)
    }
    for number, (seconds, busy, event) in enumerate(steps):
        there.arrive(shape(*seconds, num_frames=4 * number + 1), 6, every_s=2.0)
        there.signs = {T: Signs(1.0, 9, 1.0)} if busy else {}
        if event == "join":
            there.join(100 + number, memory=memory * GB)
        elif event == "lose" and len(there.gpus) > 3:
            there.lose(max(there.gpus))
        there.looks(25)
        for gpu in there.gpus.values():
            known = [there.weights[each.stage] for each in gpu.resident]
            if len(known) < 2:
                continue
            sizes = [nbytes for nbytes in known if nbytes is not None]
            assert len(sizes) == len(known)
            activations = [there.shapes[0].activation_bytes[each.stage] for each in gpu.resident]
            assert fits(sizes, activations, gpu.memory_bytes)
        assert min(there.counts()[stage] for stage in Stage) >= 1
    changes = [at for at, plan in there.plans if "came or went" not in plan.reason]
    for earlier, later in pairwise(changes):
        assert later - earlier >= PlacementConfig().cooldown_s


def test_it_says_what_it_serves() -> None:
    assert repr(Packed(PlacementConfig(), ["a", "b"])) == "Packed(a, b)"
    assert {StageKey("a", E)} != {StageKey("b", E)}
