"""`elastic`: parallelism that follows the load, promoted, demoted and preempted at step boundaries.

Two regimes, by whether any request in sight has a deadline.

Without deadlines the aim is a low mean latency at no cost in the tail:

* **Cap.** A request starts at the largest DoP whose GPUs work at the efficiency that the load
  asks for: wide while the cluster is quiet, DoP 1 when jobs queue up.
* **Order.** Short before long, with age: the key is *accepted + 4 x work*. A request whose
  latency would become one of the worst goes before all others, longest first.
* **Surplus.** GPUs nobody waits for double whichever group gains most, beyond its cap, and are
  taken back as soon as somebody waits.

With deadlines, jobs whose deadlines are in danger come first, each at the smallest DoP that is in
time; those that cannot be saved, or only at the price of several others, and those with time in
hand share the rest, shortest first. See `elastic_dit.control.policies.deadlines`.

No request without a deadline starves among its like: it is overtaken only by requests accepted
less than `_AGEING` x its own work after it, or less than the longest request's time where both
are among the worst; each priority level adds `_PRIORITY_HEAD_START_S`. Where deadlines rule,
tight ones go first, and there are never more of those than the cluster can serve in their time;
among the others a second of age weighs `_DEADLINE_AGEING` GPU-seconds of work, so that the bound
is the work divided by that.

It widens only to degrees of parallelism whose step times it is told: give the controller a cost
model (`elastic_dit.cost.CostTimes`). From observed times alone it stays at the DoPs seen so far.

One decision costs the same whatever the size of the cluster and of its queues. It looks at the
groups on `GPUS_IN_SIGHT` GPUs, those where something changed first and the rest in turn, and at a
bounded part of each queue (`elastic_dit.control.policies.sight`); gives no more than
`_MOST_ACTIONS` orders; has no more than a bounded number of moves and shrinkages under way
(`elastic_dit.control.policies.room`); and is skipped where queues, groups and free GPUs are as it
left them. Free GPUs and the order of those that wait are the whole cluster's at every look, which
is why the bound on starvation holds at any size. Up to `GPUS_IN_SIGHT` GPUs a decision sees every
group; beyond that a promotion or a shrinkage elsewhere comes a few events later, which changed
nothing to speak of in a burst on 64 GPUs. `benchmarks/decision_time.py` measures the time of an
event: it hardly grows from 64 GPUs to 1 024. It is longest where deadlines rule.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator

from elastic_dit.control import actions
from elastic_dit.control.dispatch import nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.policies.counts import (
    num_denoisers,
    num_free,
    num_within_reach,
    stages_in_use,
)
from elastic_dit.control.policies.deadlines import plan_deadlines
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.room import Room
from elastic_dit.control.policies.sight import GPUS_IN_SIGHT, Sight
from elastic_dit.control.view import ClusterView, RequestView, StageTimes
from elastic_dit.request import Stage, StageKey

__all__ = ["Elastic"]

_AGEING = 4.0
"""Seconds of later acceptance that a GPU-second of work weighs; what bounds starvation."""
_DEADLINE_AGEING = 0.05
"""Weight of a second of age against a GPU-second of work where deadlines rule the order."""
_PRIORITY_HEAD_START_S = 60.0
"""A request ranks as if accepted so much earlier for each level of its priority."""
_EFFICIENCY_BY_LOAD = ((1.5, 1.0), (0.875, 0.9), (0.0, 0.8))
"""Jobs per GPU from which on a DoP must be so efficient."""
_TAIL = 0.9
"""Part of the worst latency from which on a request goes before all others."""
_BACKLOG = 1.7
"""Latency that a backlog of one second of work per GPU makes unavoidable, seconds."""
_TAIL_MEMORY_S = 3600.0
"""The worst latency seen fades to 1/e in this time."""
_LOST_WEIGHT = 1.5
"""A job that misses its deadline anyway ranks as if it had this many times its work to do."""
_REVIEW_S = 5.0
"""Where nothing happens, deadlines still draw near: a decision stands no longer than this."""
_LAST_STEPS = 1
"""A group this near its end is left alone: its GPUs are free before a change would come."""
_MOST_ACTIONS = 16
"""Actions of one decision, decodes and prefetches aside; what is left comes with the next one."""
_SPARE_IN_LINE = 8
"""Waiting requests that are ranked beyond those that the free GPUs could start."""
_LEAST_SHARE = 8
"""Waiting requests with a deadline that a part of a large cluster cares for, at least."""
_MOVE_S = 0.05
"""What a change of group must save, at least, seconds."""


class Elastic:
    """The policy; groups stay inside a node."""

    watches_steps = False

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._worst_at = 0.0
        self._times: StageTimes | None = None
        self._sight = Sight()
        self._room = Room()
        self._keys: frozenset[StageKey] = frozenset()
        self._started: list[Job] = []
        self._decided = (-1, -1)
        self._decided_at = -math.inf
        self._again = False

    def __repr__(self) -> str:
        return "Elastic()"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Accepted, later by its work and earlier by its priority."""
        self._sight.note(request)
        return (_age_key(request, request.request.num_inference_steps * self._step_s(request)),)

    def weigh(self, request: RequestView) -> float:
        """GPU-seconds of denoising that it waits for."""
        return request.steps_left * self._step_s(request)

    def _step_s(self, request: RequestView) -> float:
        step_s = self._times.seconds(request.request, Stage.DIT) if self._times else None
        return step_s or 0.0

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Decode what is denoised; then share the other GPUs out."""
        self._times = view.times
        self._note_worst(view, now)
        new = self._again or self._sight.is_new(view, self._decided)
        if not new and now - self._decided_at < _REVIEW_S:
            return
        yield from _decodes(view)
        yield from self._room.settle(view)
        self._again = False
        working = self._sight.working(view, now)
        self._keys, self._started = stages_in_use(view, working), []
        if self._sight.has_deadlines(working):
            shared_out = self._by_deadline(view, working, now)
        else:
            shared_out = self._by_age(view, working, now)
        for count, action in enumerate(shared_out, start=1):
            yield action
            if count == _MOST_ACTIONS:
                self._again = True
                break
        yield from prefetches(view)
        self._decided, self._decided_at = view.version, now

    def _note_worst(self, view: ClusterView, now: float) -> None:
        """The oldest request's age, just before it ends, was the worst latency of its time."""
        self._worst_s *= math.exp(-(now - self._worst_at) / _TAIL_MEMORY_S)
        self._worst_at = now
        oldest = next(iter(view.requests.values()), None)
        if oldest is not None and oldest.request.deadline_s is None:
            self._worst_s = max(self._worst_s, now - oldest.accepted_at)

    # ----------------------------------------------------------------------- by age
    def _by_age(
        self, view: ClusterView, working: list[Job], now: float
    ) -> Iterator[actions.Action]:
        efficiency = self._efficiency(view)
        yield from self._give(view, working, efficiency, now)
        working += self._started
        nobody_waits = self._sight.nobody_waits
        lent = [job for job in working if job.dop > job.widest(efficiency) and _changeable(job)]
        # What others could give up, out of sight, is for the next looks.
        self._again = not self._sight.whole and not nobody_waits
        if not lent and not nobody_waits:
            return
        waiting = self._sight.waiting(view, now)
        lacking = sum(job.widest(efficiency) for job in waiting)
        lacking += sum(job.widest(efficiency) - job.dop for job in _hungry(working, efficiency))
        lacking -= self._room.leaving()
        if lacking > 0:
            yield from self._reclaim(lent, efficiency, lacking)
        elif nobody_waits:
            yield from self._spread(view, working)

    def _give(
        self, view: ClusterView, working: list[Job], efficiency: float, now: float
    ) -> Iterator[actions.Action]:
        """Give free GPUs to those that wait and to groups below their cap."""
        free = num_free(view, self._keys)
        if not free:
            return
        tail_s = _TAIL * max(self._worst_s, _BACKLOG * _backlog_s(view, self._keys, working))

        def rank(job: Job) -> tuple[float, ...]:
            dop = job.dop or job.widest(efficiency)
            latency_s = now - job.record.accepted_at + job.remaining_s(dop)
            if latency_s >= tail_s:
                return (0, -latency_s)
            return (
                (1, _age_key(job.record, job.work_s), job.record.sequence)
                if job.waits
                else (2, -latency_s)
            )

        able = _hungry(working, efficiency)
        able += self._sight.waiting(view, now, free + _SPARE_IN_LINE)
        for job in sorted((job for job in able if view.free(job.record.key)), key=rank):
            if job.waits:
                yield from self._start(view, job, job.widest(efficiency))
            else:
                yield from self._room.grow(view, job, job.widest(efficiency))

    def _reclaim(
        self, lent: list[Job], efficiency: float, lacking: int
    ) -> Iterator[actions.Action]:
        """Take back what was lent beyond the cap, from where it is most."""
        for job in sorted(lent, key=lambda job: job.widest(efficiency) - job.dop):
            if lacking <= 0 or not self._room.may_take_back:
                return
            cap = job.widest(efficiency)
            lacking -= job.dop - cap
            yield self._room.shrink(job, cap, "others wait")

    def _spread(self, view: ClusterView, working: list[Job]) -> Iterator[actions.Action]:
        """Double those groups that gain most per GPU."""
        free = {key for key in self._keys if view.free(key)}
        able = [
            (-job.gain_s(job.dop) / job.dop, number, job)
            for number, job in enumerate(working)
            if job.key in free and _changeable(job) and job.gain_s(job.dop) > _MOVE_S
        ]
        for _, _, job in sorted(able):
            yield from self._room.grow(view, job, 2 * job.dop)

    # ------------------------------------------------------------------ by deadline
    def _by_deadline(
        self, view: ClusterView, working: list[Job], now: float
    ) -> Iterator[actions.Action]:
        working = [job for job in working if _changeable(job)]
        waiting = self._sight.waiting(view, now)
        num_gpus = num_denoisers(view, self._keys)
        if not self._sight.whole:
            num_gpus = min(num_gpus, GPUS_IN_SIGHT)
            self._again = bool(waiting)
            waiting = self._their_share(view, working, waiting, now)
        found = plan_deadlines(working + waiting, num_gpus, now)
        lost = {job.request_id for job in found.lost}

        def shortest(job: Job) -> tuple[float, ...]:
            weight = _LOST_WEIGHT if job.request_id in lost else 1.0
            age_key = _DEADLINE_AGEING * job.record.accepted_at + weight * job.work_s
            return (age_key, job.record.sequence)

        in_turn = [*found.tight, *sorted(found.kept + found.lost, key=shortest)]
        left = num_within_reach(view, self._keys, working)
        targets = self._targets(view, in_turn, len(found.tight), found.needs, left)
        yield from self._take_back(working, targets)
        if num_free(view, self._keys):
            yield from self._hand_out(view, in_turn, targets)
            yield from self._spread(view, working + self._started)

    def _take_back(self, working: list[Job], targets: dict[str, int]) -> Iterator[actions.Action]:
        """Shrink or preempt groups that shall have fewer GPUs."""
        for job in working:
            target = targets.get(job.request_id, 0)
            if target >= job.dop or not self._room.may_take_back:
                continue
            if target == 0:
                yield self._room.preempt(job, "deadlines of others are near")
            else:
                yield self._room.shrink(job, target, "others need the GPUs more")

    def _hand_out(
        self, view: ClusterView, in_turn: list[Job], targets: dict[str, int]
    ) -> Iterator[actions.Action]:
        """Start and promote up to the targets; what is free beyond them starts others."""
        for job in in_turn:
            target = targets.get(job.request_id, 0)
            if target <= job.dop:
                continue
            if job.waits:
                yield from self._start(view, job, target)
            elif _changeable(job):
                yield from self._room.grow(view, job, target)
        for job in in_turn:
            if not num_free(view, self._keys):
                return
            if job.waits:
                yield from self._start(view, job, 1)

    def _their_share(
        self, view: ClusterView, working: list[Job], waiting: list[Job], now: float
    ) -> list[Job]:
        """Of those that wait, what falls to the GPUs in sight, the most urgent first.

        Those that GPUs given up out of sight are meant for are left out.
        """
        waiting.sort(
            key=lambda job: (
                job.steps_left * job.times.fastest_s > job.deadline_at - now,
                job.deadline_at,
                job.record.sequence,
            )
        )
        first = self._room.leaving(but_of={job.request_id for job in working})
        share = GPUS_IN_SIGHT / max(1, view.num_gpus)
        most = max(_LEAST_SHARE, math.ceil(share * view.waiting))
        return waiting[first : first + most]

    def _targets(
        self,
        view: ClusterView,
        in_turn: list[Job],
        num_tight: int,
        needs: dict[str, int],
        left: int,
    ) -> dict[str, int]:
        """DoP of each job that shall run."""
        efficiency = self._efficiency(view)
        targets: dict[str, int] = {}
        for number, job in enumerate(in_turn):
            if left == 0:
                break
            dop = needs.get(job.request_id, 1)
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

    def _efficiency(self, view: ClusterView) -> float:
        """What a DoP must reach at the present load."""
        load = len(view.requests) / num_denoisers(view, self._keys)
        return next(needed for least, needed in _EFFICIENCY_BY_LOAD if load >= least)

    def _start(self, view: ClusterView, job: Job, cap: int) -> Iterator[actions.Action]:
        yield from self._room.start(view, job, cap)
        if not job.waits:
            self._sight.forget(job.record)
            self._started.append(job)


def _widen(jobs: list[Job], targets: dict[str, int], left: int) -> None:
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
        if job.gain_s(dop) <= _MOVE_S:
            return
        left -= dop
        targets[job.request_id] = 2 * dop
        heapq.heappush(heap, (worth(job), number, job))


def _decodes(view: ClusterView) -> Iterator[actions.Action]:
    """Decode in the order of the queues wherever a GPU is free."""
    for key, _ in tuple(view.queues(Stage.DECODER)):
        while (queue := view.queue(key)) is not None and (head := queue.head) is not None:
            gpu = nearest_gpu(view, head)
            if gpu is None:
                break
            yield actions.Start(head.request_id, (gpu,), "denoised")


def _backlog_s(view: ClusterView, keys: Iterable[StageKey], working: list[Job]) -> float:
    """Seconds of work per GPU; requests out of sight are taken for like the others."""
    queues = [queue for stage in (Stage.DIT, Stage.ENCODER) for _, queue in view.queues(stage)]
    num_waiting, num_working = sum(map(len, queues)), len(view.running(Stage.DIT))
    works_s = [job.work_s for job in working]
    mean_s = sum(works_s) / max(1, len(works_s))
    total_s = sum(queue.weight for queue in queues) + num_working * mean_s
    per_request_s = total_s / max(1, num_waiting + num_working)
    return per_request_s * len(view.requests) / num_denoisers(view, keys)


def _hungry(working: Iterable[Job], efficiency: float) -> list[Job]:
    """Groups below their cap that can be changed."""
    return [job for job in working if job.dop < job.widest(efficiency) and _changeable(job)]


def _age_key(record: RequestView, work_s: float) -> float:
    head_start_s = record.request.priority * _PRIORITY_HEAD_START_S
    return record.accepted_at + _AGEING * work_s - head_start_s


def _changeable(job: Job) -> bool:
    return job.steady and job.steps_left > _LAST_STEPS


register_dispatch("elastic", Elastic)
