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
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice

from elastic_dit.control import actions
from elastic_dit.control.block import Block
from elastic_dit.control.dispatch import nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.groups import GroupState
from elastic_dit.control.policies.deadlines import plan_deadlines
from elastic_dit.control.policies.jobs import Job, survey
from elastic_dit.control.policies.space import Space
from elastic_dit.control.view import ClusterView, RequestView, StageTimes
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

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
_IN_SIGHT = 48
"""Waiting requests of one queue, and oldest requests, that one decision looks at."""
_REVIEW_S = 5.0
"""Where nothing happens, deadlines still draw near: a decision stands no longer than this."""
_LAST_STEPS = 1
"""A group this near its end is left alone: its GPUs are free before a change would come."""
_MOVE_S = 0.05
"""What a change of group must save, at least, seconds."""


class Elastic:
    """The policy; groups stay inside a node."""

    watches_steps = False

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._worst_at = 0.0
        self._moves: dict[str, Block] = {}
        self._times: StageTimes | None = None
        self._decided: tuple[int, ...] = ()
        self._decided_at = -math.inf

    def __repr__(self) -> str:
        return "Elastic()"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Accepted, later by its work and earlier by its priority."""
        step_s = self._times.seconds(request.request, Stage.DIT) if self._times else None
        work_s = request.request.num_inference_steps * (step_s or 0.0)
        return (_age_key(request, work_s),)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Decode what is denoised; then share the other GPUs out."""
        self._times = view.times
        self._note_worst(view, now)
        if _signature(view) == self._decided and now - self._decided_at < _REVIEW_S:
            return
        yield from _decodes(view)
        yield from self._finish_moves(view)
        jobs = survey(view, _IN_SIGHT)
        if any(job.deadline_at < math.inf for job in jobs):
            yield from self._by_deadline(view, jobs, now)
        else:
            yield from self._by_age(view, jobs, now)
        yield from prefetches(view)
        self._decided, self._decided_at = _signature(view), now

    def _note_worst(self, view: ClusterView, now: float) -> None:
        """The oldest request's age, just before it ends, was the worst latency of its time."""
        self._worst_s *= math.exp(-(now - self._worst_at) / _TAIL_MEMORY_S)
        self._worst_at = now
        oldest = next(iter(view.requests.values()), None)
        if oldest is not None and oldest.request.deadline_s is None:
            self._worst_s = max(self._worst_s, now - oldest.accepted_at)

    # ----------------------------------------------------------------------- by age
    def _by_age(self, view: ClusterView, jobs: list[Job], now: float) -> Iterator[actions.Action]:
        efficiency = _efficiency(view, jobs)
        caps = {job.request_id: job.widest(efficiency) for job in jobs}
        tail_s = _TAIL * max(self._worst_s, _BACKLOG * _backlog_s(view, jobs))

        def rank(job: Job) -> tuple[float, ...]:
            dop = job.dop or caps[job.request_id]
            latency_s = now - job.record.accepted_at + job.remaining_s(dop)
            if latency_s >= tail_s:
                return (0, -latency_s)
            return (
                (1, _age_key(job.record, job.work_s), job.record.sequence)
                if job.waits
                else (2, -latency_s)
            )

        def hungry(job: Job) -> bool:
            return _changeable(job) and job.dop < caps[job.request_id]

        able = [job for job in jobs if view.free(job.record.key) and (job.waits or hungry(job))]
        for job in sorted(able, key=rank):
            if job.waits:
                yield from self._start(view, job, caps[job.request_id])
            else:
                yield from self._grow(view, job, caps[job.request_id])
        lacking = sum(caps[job.request_id] for job in jobs if job.waits)
        lacking += sum(caps[job.request_id] - job.dop for job in jobs if hungry(job))
        lacking -= sum(map(_leaving, jobs))
        if lacking > 0:
            yield from self._reclaim(jobs, caps, lacking)
        elif not any(job.waits for job in jobs):
            yield from self._spread(view, jobs)

    def _reclaim(
        self, jobs: list[Job], caps: dict[str, int], lacking: int
    ) -> Iterator[actions.Action]:
        """Take back what was lent beyond the cap, from where it is most."""
        lent = [job for job in jobs if _changeable(job) and job.dop > caps[job.request_id]]
        for job in sorted(lent, key=lambda job: caps[job.request_id] - job.dop):
            if lacking <= 0:
                return
            cap = caps[job.request_id]
            lacking -= job.dop - cap
            yield _shrunk(job, cap, "others wait")

    def _spread(self, view: ClusterView, jobs: list[Job]) -> Iterator[actions.Action]:
        """Nobody waits: double whichever group gains most per GPU, as long as one can."""
        stuck: set[str] = set()
        while True:
            able = [
                job
                for job in jobs
                if job.request_id not in stuck
                and _changeable(job)
                and job.gain_s(job.dop) > _MOVE_S
            ]
            if not able:
                return
            best = max(able, key=lambda job: job.gain_s(job.dop) / job.dop)
            stuck.add(best.request_id)
            yield from self._grow(view, best, 2 * best.dop)

    # ------------------------------------------------------------------ by deadline
    def _by_deadline(
        self, view: ClusterView, jobs: list[Job], now: float
    ) -> Iterator[actions.Action]:
        jobs = [job for job in jobs if job.waits or _changeable(job)]
        found = plan_deadlines(jobs, _denoisers(view, jobs), now)
        lost = {job.request_id for job in found.lost}

        def shortest(job: Job) -> tuple[float, ...]:
            weight = _LOST_WEIGHT if job.request_id in lost else 1.0
            age_key = _DEADLINE_AGEING * job.record.accepted_at + weight * job.work_s
            return (age_key, job.record.sequence)

        others = sorted(found.kept + found.lost, key=shortest)
        targets = self._targets(view, found.tight, others, found.needs)
        for job in jobs:
            target = targets.get(job.request_id, 0)
            if not job.waits and target == 0:
                yield actions.Preempt(job.request_id, "deadlines of others are near")
            elif target < job.dop:
                yield _shrunk(job, target, "others need the GPUs more")
        for job in (*found.tight, *others):
            target = targets.get(job.request_id, 0)
            if job.waits and target:
                yield from self._start(view, job, target)
            elif _changeable(job) and target > job.dop:
                yield from self._grow(view, job, target)
        for job in (*found.tight, *others):
            if job.waits:
                yield from self._start(view, job, 1)
        yield from self._spread(view, [job for job in jobs if _changeable(job)])

    def _targets(
        self, view: ClusterView, tight: list[Job], others: list[Job], needs: dict[str, int]
    ) -> dict[str, int]:
        """DoP of each job that shall run."""
        left = _within_reach(view, (*tight, *others))
        targets: dict[str, int] = {}
        for job in tight:
            if needs[job.request_id] <= left:
                targets[job.request_id] = needs[job.request_id]
                left -= needs[job.request_id]
        efficiency = _efficiency(view, (*tight, *others))
        for job in others:
            if left == 0:
                break
            dop = max(job.widest(efficiency), needs.get(job.request_id, 1))
            while dop > left:
                dop //= 2
            targets[job.request_id] = dop
            left -= dop
        running = [job for job in (*tight, *others) if job.request_id in targets]
        while True:
            able = [job for job in running if targets[job.request_id] <= left]
            best = max(
                able,
                key=lambda job: job.gain_s(targets[job.request_id]) / targets[job.request_id],
                default=None,
            )
            if best is None or best.gain_s(targets[best.request_id]) <= _MOVE_S:
                return targets
            left -= targets[best.request_id]
            targets[best.request_id] *= 2

    # ---------------------------------------------------------------------- actions
    def _space(self, view: ClusterView, job: Job, avoid: AbstractSet[GpuId] = frozenset()) -> Space:
        reserved = {gpu for block in self._moves.values() for gpu in block.gpus}
        return Space(view, job.record.key, view.config.slots_per_node, reserved | avoid)

    def _start(self, view: ClusterView, job: Job, cap: int) -> Iterator[actions.Action]:
        encodes = job.record.stage is Stage.ENCODER
        if not view.free(job.record.key) or (encodes and not view.has_room_after(job.record.key)):
            return
        space = self._space(view, job, job.record.avoid)
        if not space.largest:
            space = self._space(view, job)
        size = min(1 if encodes else cap, space.largest)
        block = space.block(size) if size else None
        if block is not None:
            yield actions.Start(job.request_id, block.gpus, f"DoP {size} of {cap}")

    def _grow(self, view: ClusterView, job: Job, cap: int) -> Iterator[actions.Action]:
        """Promote towards `cap`: in place, else by moving to a free block."""
        group = job.group
        here = Block.of(group.gpus) if group else None
        if here is None or not view.free(job.key):
            return
        space = self._space(view, job)
        size = cap
        while size > here.size:
            wider = space.around(here, size)
            if wider is not None:
                yield actions.Resize(job.request_id, wider.gpus, f"promoted to DoP {size}")
                return
            elsewhere = space.block(size)
            if elsewhere is not None:
                self._moves[job.request_id] = elsewhere
                yield actions.Preempt(job.request_id, f"moves to GPUs that allow DoP {size}")
                return
            size //= 2

    def _finish_moves(self, view: ClusterView) -> Iterator[actions.Action]:
        """Start those that left their GPUs for better ones; forget moves that came to nothing."""
        for request_id, block in tuple(self._moves.items()):
            record = view.requests.get(request_id)
            group = record.group if record is not None else None
            if group is not None and group.state is GroupState.PREEMPTING:
                continue
            del self._moves[request_id]
            waits = record is not None and record.phase.is_waiting and record.stage is Stage.DIT
            if record is not None and waits and _all_free(view, record, block.gpus):
                yield actions.Start(request_id, block.gpus, f"moved, DoP {block.size}")


def _decodes(view: ClusterView) -> Iterator[actions.Action]:
    """Decode in the order of the queues wherever a GPU is free."""
    for key, _ in tuple(view.queues(Stage.DECODER)):
        while (queue := view.queue(key)) is not None and (head := queue.head) is not None:
            gpu = nearest_gpu(view, head)
            if gpu is None:
                break
            yield actions.Start(head.request_id, (gpu,), "denoised")


def _signature(view: ClusterView) -> tuple[int, ...]:
    """What changes whenever there is something to decide; ticks alone leave it as it is."""
    queues = [queue for stage in Stage for _, queue in view.queues(stage)]
    groups = list(view.running(Stage.DIT))
    return (
        len(view.requests),
        sum(map(len, queues)),
        len(groups),
        sum(group.state is GroupState.RUNNING for group in groups),
        sum(group.dop for group in groups),
    )


def _denoisers(view: ClusterView, jobs: Iterable[Job]) -> int:
    """GPUs that denoise, busy or not."""
    return max((len(view.serving(key)) for key in {job.key for job in jobs}), default=1) or 1


def _efficiency(view: ClusterView, jobs: Iterable[Job]) -> float:
    load = len(view.requests) / _denoisers(view, jobs)
    return next(needed for least, needed in _EFFICIENCY_BY_LOAD if load >= least)


def _backlog_s(view: ClusterView, jobs: list[Job]) -> float:
    """Seconds of work per GPU, taking what is out of sight for alike."""
    if not jobs:
        return 0.0
    mean_s = sum(job.work_s for job in jobs) / len(jobs)
    return mean_s * max(len(jobs), len(view.requests)) / _denoisers(view, jobs)


def _age_key(record: RequestView, work_s: float) -> float:
    head_start_s = record.request.priority * _PRIORITY_HEAD_START_S
    return record.accepted_at + _AGEING * work_s - head_start_s


def _changeable(job: Job) -> bool:
    return job.steady and job.steps_left > _LAST_STEPS


def _leaving(job: Job) -> int:
    """GPUs that a group has been told to give up and still holds."""
    group = job.group
    if group is None or job.steady:
        return 0
    return len(set(group.gpus) - set(group.target))


def _shrunk(job: Job, dop: int, reason: str) -> actions.Resize:
    assert job.group is not None
    return actions.Resize(job.request_id, tuple(islice(job.group.gpus, dop)), reason)


def _within_reach(view: ClusterView, jobs: Iterable[Job]) -> int:
    """GPUs that are free for the jobs or held by those that can be changed."""
    jobs = tuple(jobs)
    free = {gpu for key in {job.key for job in jobs} for gpu in view.free(key)}
    return len(free) + sum(job.dop for job in jobs if not job.waits)


def _all_free(view: ClusterView, record: RequestView, gpus: tuple[GpuId, ...]) -> bool:
    return all(view.is_free(record.key, gpu) for gpu in gpus)


register_dispatch("elastic", Elastic)
