from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.verify.plans import Plan, standard_plans, ticket_of


@pytest.mark.parametrize(
    ("text", "stages", "shown"),
    [
        ("1,2,1", ((0,), (0, 1), (0,)), "1→2→1"),
        ("4", ((0, 1, 2, 3),), "4"),
        ("@1, @3+1 ,@1", ((1,), (1, 3), (1,)), "{1}→{1,3}→{1}"),
        ("@0,@0+1", ((0,), (0, 1)), "1→2"),
    ],
)
def test_plans_as_users_write_them(text: str, stages: object, shown: str) -> None:
    plan = Plan.parse(text)
    assert (plan.stages, str(plan)) == (stages, shown)


@pytest.mark.parametrize(
    "text",
    ["", "0", "1,,2", "1,1", "one", "@", "@1+1", "1,@1", "65", "@64", "1→2", "-1", "1+3", "1," * 3],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="plan = "):
        Plan.parse(text)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    gpus = st.sets(st.integers(0, 5), min_size=1, max_size=4).map(lambda s: tuple(sorted(s)))
    stages = [draw(gpus)]
    for _ in range(draw(st.integers(0, 5))):
        near = gpus.filter(lambda s: s != stages[-1] and set(s) & set(stages[-1]))
        stages.append(draw(near))
    return Plan(tuple(stages))


@given(plan=plans(), more=st.integers(0, 20))
def test_everybody_joins_exactly_when_a_stage_needs_it(plan: Plan, more: int) -> None:
    steps = len(plan.stages) + more
    orders = plan.boundaries(steps)
    assert len(orders) == len(plan.stages) - (len(plan.stages[0]) == 1)
    skipped = len(plan.stages) - len(orders)
    assert tuple(orders.values()) == plan.stages[skipped:]
    assert all(0 <= step < steps for step in orders)
    joined = {seating.gpu: list(seating.tickets) for seating in plan.seatings(steps)}
    present = {plan.first}
    assert joined[plan.first].pop(0) == ""
    for step, members in orders.items():
        for gpu in set(members) - present:
            assert joined[gpu].pop(0) == ticket_of(step)
        present = set(members)
    assert not any(joined.values())
    assert set(joined) == set(plan.gpus)


def test_the_standard_plans_try_all_degrees_neighbours_or_not_at_every_boundary() -> None:
    plans = standard_plans((1, 2, 4), 6)
    assert Plan.parse("1,2,1") in plans
    assert Plan.parse("1,2,4,2,1") in plans
    assert Plan.parse("@1,@1+3,@1") in plans
    assert any(sorted(plan.boundaries(6)) == [1, 2, 3, 4, 5] for plan in plans)
    assert [str(plan) for plan in standard_plans((1,), 6)] == ["1"]
    assert [str(plan) for plan in standard_plans((2,), 6)] == ["{1}→{1,3}→{1}", "2"]
    assert [str(plan) for plan in standard_plans((1, 2), 2)] == ["1→2→1", "{1}→{1,3}→{1}", "1→2"]
