"""What a member hears and says: every order and every change, in every order."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_dit.cluster.worker.group_box import GroupBox
from elastic_dit.cluster.worker.step_pace import StepPace
from elastic_dit.engine.group_context import Change, Regroup
from elastic_dit.engine.protocol import Boundary
from elastic_dit.errors import ClusterError
from elastic_dit.events import Event, GpusFreed, MembersLost, Resize, ResizeRefused, StepDone
from tests.cluster.bench import request

STEPS = 12
SINCE = 5


def box(gpu: int = 0, *gpus: int) -> tuple[GroupBox, list[Event]]:
    said: list[Event] = []
    made = GroupBox(
        gpu, request(num_inference_steps=STEPS), ("r", 1, SINCE), SINCE, said.append, StepPace(60.0)
    )
    if gpus:
        made.lead(gpus, patience_s=1.0)
    return made, said


def resize(epoch: int, *gpus: int, lost: tuple[int, ...] = ()) -> Resize:
    return Resize(
        request_id="r", attempt=1, epoch=epoch, gpus=gpus, reason="", since=SINCE, lost=lost
    )


def change(*members: int, step: int = 3, ticket: str = "", **who: tuple[int, ...]) -> Change:
    return Change(members=members, step=step, ticket=ticket, **who)


def fence(epoch: int) -> dict[str, Any]:
    return {"request_id": "r", "attempt": 1, "epoch": epoch}


def test_one_that_begins_alone_only_counts_its_steps() -> None:
    alone, said = box(0, 0)
    assert [alone.boundary(step, STEPS) for step in (0, 1)] == [Boundary.CONTINUE] * 2
    assert said == [StepDone(**fence(SINCE), step=1)]


def test_a_group_begins_by_an_order_to_join_its_master() -> None:
    master, said = box(0, 0, 1)
    assert master.boundary(0, STEPS) == Regroup(members=(0, 1), ticket="5", patience_s=1.0)
    assert master.boundary(0, STEPS) is Boundary.CONTINUE
    master.changed(change(0, 1, step=0, ticket="5"))
    master.boundary(STEPS, STEPS)
    assert said == [StepDone(**fence(SINCE), step=STEPS), GpusFreed(**fence(SINCE), gpus=(1,))]


def test_an_order_is_confirmed_by_its_epoch_and_says_who_left() -> None:
    master, said = box(0, 0)
    master.changed(change(0, 1, 2, 3, ticket="6"))
    master.order(resize(7, 0, 1))
    assert master.boundary(4, STEPS) == Regroup(members=(0, 1), ticket="7")
    master.changed(change(0, 1, step=4, ticket="7", released=(2, 3)))
    master.boundary(4, STEPS)
    assert said == [
        StepDone(**fence(6), step=4),
        GpusFreed(**fence(7), gpus=(2, 3)),
        StepDone(**fence(7), step=4),
    ]


def test_a_follower_is_silent_until_it_is_master_and_obeys_no_old_order() -> None:
    follower, said = box(1)
    follower.changed(change(0, 1, ticket="6"))
    follower.order(resize(7, 0, 1, 2, 3))
    follower.changed(change(0, 1, 2, 3, ticket="7"))
    follower.changed(change(2, 3, lost=(0,), released=(1,)))
    assert said == []
    follower.changed(change(1, ticket="8"))
    assert follower.boundary(5, STEPS) is Boundary.CONTINUE
    assert said[-1] == StepDone(**fence(8), step=5)


@pytest.mark.parametrize("told_first", [True, False])
def test_survivors_take_the_epoch_of_the_order_for_what_they_are(told_first: bool) -> None:
    """Group 0-3 loses 1: it goes on as 2 and 3, whenever the order for that comes."""
    heir, said = box(2)
    heir.changed(change(0, 1, 2, 3, ticket="6"))
    healed = change(2, 3, step=4, lost=(1,), released=(0,))
    order = resize(7, 2, 3, lost=(1,))
    if told_first:
        heir.order(order)
        assert heir.lost() == {1}
        heir.changed(healed)
    else:
        heir.changed(healed)
        assert [type(event) for event in said] == [MembersLost]
        heir.order(order)
    told = [event for event in said if not isinstance(event, MembersLost)]
    assert told == [GpusFreed(**fence(7), gpus=(0,)), StepDone(**fence(7), step=4)]
    assert len(said) == len(told) + (not told_first)
    again = heir.boundary(5, STEPS)
    assert again == Regroup(members=(2, 3), ticket="7"), "so that old joiners are sent away"


def test_joiners_of_a_replaced_order_are_said_to_be_free() -> None:
    master, said = box(0, 0)
    master.changed(change(0, 1, ticket="6"))
    master.order(resize(7, 0, 1, 2, 3))
    master.boundary(4, STEPS)
    master.changed(change(0, step=4, lost=(1,)))
    master.order(resize(8, 0, lost=(1,)))
    assert GpusFreed(**fence(8), gpus=(2, 3)) in said


def test_one_that_waits_to_join_gives_up_for_a_newer_order() -> None:
    joiner, said = box(1)
    assert not joiner.aborted()
    joiner.order(resize(7, 0, 1))
    assert joiner.aborted()
    assert not joiner.is_aborted
    assert joiner.rejoins() == 7
    assert said == []


def test_a_replacement_is_not_taken_for_the_dead() -> None:
    master, _ = box(0, 0)
    master.changed(change(0, step=2, lost=(1,)))
    assert master.lost() == {1}
    master.order(resize(9, 0, 1))
    assert master.lost() == frozenset()


def test_refusals_are_told_under_the_epoch_of_the_order() -> None:
    master, said = box(0, 0)
    master.order(resize(7, 0, 1))
    order = master.boundary(1, STEPS)
    assert isinstance(order, Regroup)
    master.refused(order, "no store")
    assert said[-1] == ResizeRefused(**fence(7), reason="no store")
    begun, _ = box(0, 0, 1)
    order = begun.boundary(0, STEPS)
    assert isinstance(order, Regroup)
    with pytest.raises(ClusterError, match="cannot begin as a group: no store"):
        begun.refused(order, "no store")


def test_what_stops_more_thoroughly_wins_and_old_orders_do_nothing() -> None:
    master, said = box(0, 0)
    master.post(Boundary.PREEMPT)
    assert master.boundary(1, STEPS) is Boundary.PREEMPT
    master.post(Boundary.ABORT)
    master.post(Boundary.PREEMPT)
    assert master.boundary(2, STEPS) is Boundary.ABORT
    assert [event.step for event in said if isinstance(event, StepDone)] == [1]
    other, _ = box(0, 0)
    other.order(resize(SINCE, 0, 1))
    assert other.boundary(1, STEPS) is Boundary.CONTINUE


def test_the_first_boundary_of_each_group_is_told_however_soon() -> None:
    master, said = box(0, 0)
    for step in (1, 2):
        master.boundary(step, STEPS)
    master.changed(change(0, 1, step=2, ticket="6"))
    for step in (3, 4):
        master.boundary(step, STEPS)
    assert said == [StepDone(**fence(SINCE), step=1), StepDone(**fence(6), step=3)]
