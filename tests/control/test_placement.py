"""Static placement: ratio, stability, failed loads."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import (
    StaticRatio,
    make_placement,
    placement_policies,
)
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import PlacementPlan

E, T, D = Stage
RATIO = StageRatio(encoder=1, dit=6, decoder=1)


def snapshot(
    *gpus: int,
    plan: PlacementPlan | None = None,
    failed: dict[int, dict[str, str]] | None = None,
) -> ClusterSnapshot:
    held = plan.residency if plan else {}
    return ClusterSnapshot(
        at=0.0,
        plan_epoch=plan.epoch if plan else 0,
        plan_reason="",
        gpus=tuple(
            GpuSnapshot(
                gpu=gpu,
                name=f"w{gpu}",
                node="n",
                kind="virtual",
                memory_bytes=0,
                resident=tuple(sorted(held.get(gpu, ()))),
                wanted=tuple(sorted(held.get(gpu, ()))),
                failed=(failed or {}).get(gpu, {}),
            )
            for gpu in gpus
        ),
    )


def counts(plan: PlacementPlan) -> list[int]:
    held = Counter(key.stage for keys in plan.residency.values() for key in keys)
    return [held[stage] for stage in Stage]


def test_colocated_gives_every_gpu_everything_it_can_load() -> None:
    policy = make_placement(PlacementConfig(policy="colocated"), ["m", "n"])
    everything = frozenset(StageKey(model, stage) for model in ("m", "n") for stage in Stage)
    plan = policy.plan(snapshot(0, 1), 0.0)
    assert plan is not None
    assert (plan.epoch, plan.residency) == (1, {0: everything, 1: everything})
    assert policy.plan(snapshot(0, 1, plan=plan), 1.0) is None
    broken = snapshot(0, 1, plan=plan, failed={1: {f"m/{T}": "bad weights"}})
    again = policy.plan(broken, 2.0)
    assert again is not None
    assert again.residency == {0: everything, 1: everything - {StageKey("m", T)}}


def test_eight_gpus_split_in_the_ratio_with_the_dit_on_the_lowest() -> None:
    plan = StaticRatio(RATIO, ["m"]).plan(snapshot(*range(8)), 0.0)
    assert plan is not None
    assert plan.epoch == 1
    assert counts(plan) == [1, 6, 1]
    assert [plan.residency[gpu] for gpu in range(6)] == [{StageKey("m", T)}] * 6
    assert plan.reason == "E:T:D = 1:6:1 on 8 GPUs"


@pytest.mark.parametrize("gpus", [1, 2])
def test_with_fewer_gpus_than_stages_each_holds_all(gpus: int) -> None:
    plan = StaticRatio(RATIO, ["m", "n"]).plan(snapshot(*range(gpus)), 0.0)
    everything = {StageKey(model, stage) for model in ("m", "n") for stage in Stage}
    assert plan is not None
    assert list(plan.residency.values()) == [everything] * gpus


def test_no_gpus_need_no_plan() -> None:
    assert StaticRatio(RATIO, ["m"]).plan(snapshot(), 0.0) is None


def test_what_is_in_place_is_not_planned_again() -> None:
    policy = StaticRatio(RATIO, ["m"])
    plan = policy.plan(snapshot(*range(8)), 0.0)
    assert policy.plan(snapshot(*range(8), plan=plan), 0.0) is None


@given(
    st.sets(st.integers(0, 30), min_size=3, max_size=20),
    st.integers(0, 30),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_a_gpu_that_comes_or_goes_moves_few_stages(
    gpus: set[int], other: int, encoder: int, dit: int
) -> None:
    ratio = StageRatio(encoder=encoder, dit=dit, decoder=1)
    policy = StaticRatio(ratio, ["m"])
    before = policy.plan(snapshot(*sorted(gpus)), 0.0)
    assert before is not None
    after_gpus = gpus ^ {other}
    after = policy.plan(snapshot(*sorted(after_gpus), plan=before), 0.0)
    if len(after_gpus) < 3:
        return
    final = after.residency if after else before.residency
    kept = gpus & after_gpus
    moved = sum(final[gpu] != before.residency[gpu] for gpu in kept)
    shares = {E: encoder, T: dit, D: 1}
    old, new = split_by_ratio(len(gpus), shares), split_by_ratio(len(after_gpus), shares)
    least = sum(max(0, old[stage] - new[stage]) for stage in Stage)
    assert moved <= least + 1


def test_growing_past_two_gpus_narrows_what_each_holds() -> None:
    policy = StaticRatio(StageRatio(), ["m"])
    two = policy.plan(snapshot(0, 1), 0.0)
    three = policy.plan(snapshot(0, 1, 2, plan=two), 0.0)
    assert three is not None
    assert counts(three) == [1, 1, 1]
    assert three.epoch == 2


def test_a_gpu_that_failed_to_load_a_stage_gets_another() -> None:
    policy = StaticRatio(RATIO, ["m"])
    plan = policy.plan(snapshot(*range(8)), 0.0)
    after = policy.plan(snapshot(*range(8), plan=plan, failed={6: {"m/encoder": "bad"}}), 0.0)
    assert after is not None
    assert StageKey("m", E) not in after.residency[6]
    assert after.residency[6] != frozenset()
    assert min(counts(after)) >= 1


def test_a_stage_that_fails_everywhere_leaves_the_rest_served() -> None:
    failed = {gpu: {"m/encoder": "bad"} for gpu in range(8)}
    plan = StaticRatio(RATIO, ["m"]).plan(snapshot(*range(8), failed=failed), 0.0)
    assert plan is not None
    assert counts(plan)[0] == 0
    assert min(counts(plan)[1:]) >= 1


@given(st.integers(3, 200), st.tuples(*[st.integers(1, 20)] * 3))
def test_split_is_exact_and_close_to_the_ratio(total: int, shares: tuple[int, int, int]) -> None:
    wanted = dict(zip(Stage, shares, strict=True))
    split = split_by_ratio(total, wanted)
    assert sum(split.values()) == total
    assert min(split.values()) >= 1
    for stage, share in wanted.items():
        quota = total * share / sum(shares)
        assert abs(split[stage] - quota) < 1 or split[stage] == 1 or min(split.values()) == 1


def test_policies_are_found_by_name() -> None:
    assert "static" in placement_policies()
    assert repr(make_placement(PlacementConfig(), ["m"])) == "StaticRatio(1:2:1)"
    # Other tests of the same process may have registered theirs.
    with pytest.raises(ConfigError, match=r"policy = 'x': must be one of colocated, .*static"):
        make_placement(PlacementConfig(policy="x"), ["m"])
