"""`elastic`: parallelism that follows the load, promoted, demoted and preempted at step boundaries.

Two regimes, by whether any request in sight has a deadline.

* `elastic_dit.control.policies.by_age`: a low mean latency at no cost in the tail;
* `elastic_dit.control.policies.by_deadline`: as many in time as can be.

No request without a deadline starves among its like: it is overtaken only by requests accepted
less than `AGEING` x its own work after it, or less than the longest request's time where both
are among the worst; each priority level adds `PRIORITY_HEAD_START_S`. Where deadlines rule,
tight ones go first, and there are never more of those than the cluster can serve in their time;
among the others a second of age weighs `DEADLINE_AGEING` GPU-seconds of work, so that the bound
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

import math
from collections.abc import Iterator

from elastic_dit.control import actions
from elastic_dit.control.dispatch import nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.policies.by_age import age_key, share_by_age
from elastic_dit.control.policies.by_deadline import share_by_deadline
from elastic_dit.control.policies.elastic_look import Look
from elastic_dit.control.policies.room import Room
from elastic_dit.control.policies.sight import Sight
from elastic_dit.control.view import ClusterView, RequestView, StageTimes
from elastic_dit.request import Stage

__all__ = ["Elastic"]

_TAIL_MEMORY_S = 3600.0
"""The worst latency seen fades to 1/e in this time."""
_REVIEW_S = 5.0
"""Where nothing happens, deadlines still draw near: a decision stands no longer than this."""
_MOST_ACTIONS = 16
"""Actions of one decision, decodes and prefetches aside; what is left comes with the next one."""


class Elastic:
    """The policy; groups stay inside a node."""

    watches_steps = False

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._worst_at = 0.0
        self._times: StageTimes | None = None
        self._sight = Sight()
        self._room = Room()
        self._decided = (-1, -1)
        self._decided_at = -math.inf
        self._again = False

    def __repr__(self) -> str:
        return "Elastic()"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """See `age_key`."""
        self._sight.note(request)
        return (age_key(request, request.request.num_inference_steps * self._step_s(request)),)

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
        self._again = True  # unless it comes to its end
        yield from _decodes(view)
        yield from self._room.settle(view)
        look = Look(view, now, self._sight, self._room, self._sight.working(view, now))
        if self._sight.has_deadlines(look.working):
            shared_out = share_by_deadline(look)
        else:
            shared_out = share_by_age(look, self._worst_s)
        for count, action in enumerate(shared_out, start=1):
            yield action
            if count == _MOST_ACTIONS:
                look.again = True
                break
        yield from prefetches(view)
        self._again, self._decided, self._decided_at = look.again, view.version, now

    def _note_worst(self, view: ClusterView, now: float) -> None:
        """The oldest request's age, just before it ends, was the worst latency of its time."""
        self._worst_s *= math.exp(-(now - self._worst_at) / _TAIL_MEMORY_S)
        self._worst_at = now
        oldest = next(iter(view.requests.values()), None)
        if oldest is not None and oldest.request.deadline_s is None:
            self._worst_s = max(self._worst_s, now - oldest.accepted_at)


def _decodes(view: ClusterView) -> Iterator[actions.Action]:
    """Decode in the order of the queues wherever a GPU is free."""
    for key, _ in tuple(view.queues(Stage.DECODER)):
        while (queue := view.queue(key)) is not None and (head := queue.head) is not None:
            gpu = nearest_gpu(view, head)
            if gpu is None:
                break
            yield actions.Start(head.request_id, (gpu,), "denoised")


register_dispatch("elastic", Elastic)
