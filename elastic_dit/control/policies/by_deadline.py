"""`elastic` where requests have deadlines: as many of them in time as can be, the rest soon.

Jobs whose deadlines are in danger come first, each at the smallest DoP that is in time; those that
cannot be saved, or only at the price of several others, and those with time in hand share the
rest, shortest first. See `elastic_dit.control.policies.deadlines`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence

from elastic_dit.control import actions
from elastic_dit.control.policies.contenders import contenders
from elastic_dit.control.policies.counts import num_within_reach
from elastic_dit.control.policies.deadlines import DeadlinePlan, plan_deadlines
from elastic_dit.control.policies.elastic_look import MOVE_S, Look, changeable
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import GPUS_IN_SIGHT

__all__ = ["DEADLINE_AGEING", "share_by_deadline"]

DEADLINE_AGEING = 0.05
"""Weight of a second of age against a GPU-second of work where deadlines rule the order."""
_LOST_WEIGHT = 1.5
"""A job that misses its deadline anyway ranks as if it had this many times its work to do."""
_LEAST_SHARE = 8
"""Waiting requests with a deadline that a part of a large cluster cares for, at least."""


def share_by_deadline(look: Look) -> Iterator[actions.Action]:
    """Share the GPUs out."""
    working = [job for job in look.working if changeable(job)]
    waiting = look.sight.waiting(look.view, look.now)
    num_gpus = look.num_denoisers
    if not look.sight.whole:
        num_gpus = min(num_gpus, GPUS_IN_SIGHT)
        look.again = bool(waiting)
        waiting = _their_share(look, working, waiting)
    found = plan_deadlines(working + waiting, num_gpus, look.now, widest=look.widest)
    in_turn = [*found.tight, *_shortest_first(found)]
    targets = _targets(look, in_turn, found, num_within_reach(look.view, look.keys, working))
    yield from _take_back(look, working, targets)
    if look.num_free:
        yield from _hand_out(look, in_turn, targets)
        yield from look.spread(working + look.started)


def _shortest_first(found: DeadlinePlan) -> list[Job]:
    """Those that need not go first, in the order that they share the rest in."""
    lost = {job.request_id for job in found.lost}

    def rank(job: Job) -> tuple[float, ...]:
        weight = _LOST_WEIGHT if job.request_id in lost else 1.0
        age_key = DEADLINE_AGEING * job.record.accepted_at + weight * job.work_s
        return (age_key, job.record.sequence)

    return sorted(found.kept + found.lost, key=rank)


def _their_share(look: Look, working: Sequence[Job], waiting: list[Job]) -> list[Job]:
    """Of those that wait, what falls to the GPUs in sight, the most urgent first.

    Those that GPUs given up out of sight are meant for are left out.
    """
    waiting.sort(
        key=lambda job: (
            job.steps_left * job.times.fastest_s > job.deadline_at - look.now,
            job.deadline_at,
            job.record.sequence,
        )
    )
    first = look.room.leaving(but_of={job.request_id for job in working})
    share = GPUS_IN_SIGHT / max(1, look.view.num_gpus)
    most = max(_LEAST_SHARE, math.ceil(share * look.view.waiting))
    return waiting[first : first + most]


def _targets(look: Look, in_turn: list[Job], found: DeadlinePlan, left: int) -> dict[str, int]:
    """DoP of each job that shall run, by request id."""
    efficiency, num_tight = look.efficiency, len(found.tight)
    able = {job.request_id for job in contenders(look.view, in_turn)}
    targets: dict[str, int] = {}
    for number, job in enumerate(in_turn):
        if left == 0:
            break
        if job.request_id not in able:
            continue
        dop = found.needs.get(job.request_id, 1)
        if number < num_tight:
            if dop > left:
                continue
        else:
            dop = max(job.widest(efficiency), dop)
            while dop > left:
                dop //= 2
        targets[job.request_id] = dop
        left -= dop
    _widen([job for job in in_turn if job.request_id in targets], targets, left)
    return targets


def _widen(jobs: Sequence[Job], targets: dict[str, int], left: int) -> None:
    """Double the target that gains most per GPU, as long as GPUs are left."""

    def worth(job: Job) -> float:
        dop = targets[job.request_id]
        return -job.gain_s(dop) / dop

    heap = [(worth(job), number, job) for number, job in enumerate(jobs)]
    heapq.heapify(heap)
    while heap and left:
        _, number, job = heapq.heappop(heap)
        dop = targets[job.request_id]
        if dop > left:
            continue
        if job.gain_s(dop) <= MOVE_S:
            return
        left -= dop
        targets[job.request_id] = 2 * dop
        heapq.heappush(heap, (worth(job), number, job))


def _take_back(
    look: Look, working: Sequence[Job], targets: Mapping[str, int]
) -> Iterator[actions.Action]:
    """Shrink or preempt groups that shall have fewer GPUs."""
    for job in working:
        target = targets.get(job.request_id, 0)
        if target >= job.dop or not look.room.may_take_back:
            continue
        if target == 0:
            yield look.room.preempt(job, "deadlines of others are near")
        else:
            yield look.room.shrink(job, target, "others need the GPUs more")


def _hand_out(
    look: Look, in_turn: Sequence[Job], targets: Mapping[str, int]
) -> Iterator[actions.Action]:
    """Start and promote up to the targets; what is free beyond them starts others."""
    for job in in_turn:
        target = targets.get(job.request_id, 0)
        if target <= job.dop:
            continue
        if job.waits:
            yield from look.start(job, target)
        elif changeable(job):
            yield from look.room.grow(look.view, job, target)
    for job in in_turn:
        if not look.num_free:
            return
        if job.waits:
            yield from look.start(job, 1)
