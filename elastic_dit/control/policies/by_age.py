"""`elastic` without deadlines: a low mean latency at no cost in the tail.

* **Cap.** A request starts at the largest DoP whose GPUs work at the efficiency that the load
  asks for: wide while the cluster is quiet, DoP 1 when jobs queue up.
* **Order.** Short before long, with age: the key is *accepted + 4 x work*. A request whose
  latency would become one of the worst goes before all others, longest first.
* **Surplus.** GPUs nobody waits for double whichever group gains most, beyond its cap, and are
  taken back as soon as somebody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elastic_dit.control import actions
from elastic_dit.control.policies.elastic_look import Look, changeable
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.view import RequestView
from elastic_dit.request import Stage

__all__ = ["AGEING", "PRIORITY_HEAD_START_S", "age_key", "share_by_age"]

AGEING = 4.0
"""Seconds of later acceptance that a GPU-second of work weighs; what bounds starvation."""
PRIORITY_HEAD_START_S = 60.0
"""A request ranks as if accepted so much earlier for each level of its priority."""
_TAIL = 0.9
"""Part of the worst latency from which on a request goes before all others."""
_BACKLOG = 1.7
"""Latency that a backlog of one second of work per GPU makes unavoidable, seconds."""
_SPARE_IN_LINE = 8
"""Waiting requests that are ranked beyond those that the free GPUs could start."""


def age_key(record: RequestView, work_s: float) -> float:
    """Accepted, later by its work and earlier by its priority: smaller goes first."""
    head_start_s = record.request.priority * PRIORITY_HEAD_START_S
    return record.accepted_at + AGEING * work_s - head_start_s


def share_by_age(look: Look, worst_s: float) -> Iterator[actions.Action]:
    """Share the GPUs out.

    Parameters
    ----------
    look : Look
    worst_s : float
        The worst latency of late, seconds.
    """
    efficiency = look.efficiency
    yield from _give(look, efficiency, worst_s)
    working = look.working + look.started
    nobody_waits = look.sight.nobody_waits
    lent = [job for job in working if job.dop > job.widest(efficiency) and changeable(job)]
    # What others could give up, out of sight, is for the next looks.
    look.again = not look.sight.whole and not nobody_waits
    if not lent and not nobody_waits:
        return
    waiting = look.sight.waiting(look.view, look.now)
    lacking = sum(job.widest(efficiency) for job in waiting)
    lacking += sum(job.widest(efficiency) - job.dop for job in _hungry(working, efficiency))
    lacking -= look.room.leaving()
    if lacking > 0:
        yield from _reclaim(look, lent, efficiency, lacking)
    elif nobody_waits:
        yield from look.spread(working)


def _give(look: Look, efficiency: float, worst_s: float) -> Iterator[actions.Action]:
    """Give free GPUs to those that wait and to groups below their cap."""
    view, now, free = look.view, look.now, look.num_free
    if not free:
        return
    tail_s = _TAIL * max(worst_s, _BACKLOG * _backlog_s(look))

    def rank(job: Job) -> tuple[float, ...]:
        dop = job.dop or job.widest(efficiency)
        latency_s = now - job.record.accepted_at + job.remaining_s(dop)
        if latency_s >= tail_s:
            return (0, -latency_s)
        return (
            (1, age_key(job.record, job.work_s), job.record.sequence)
            if job.waits
            else (2, -latency_s)
        )

    able = _hungry(look.working, efficiency)
    able += look.sight.waiting(view, now, free + _SPARE_IN_LINE)
    for job in sorted((job for job in able if view.free(job.record.key)), key=rank):
        if job.waits:
            yield from look.start(job, job.widest(efficiency))
        else:
            yield from look.room.grow(view, job, job.widest(efficiency))


def _reclaim(
    look: Look, lent: list[Job], efficiency: float, lacking: int
) -> Iterator[actions.Action]:
    """Take back what was lent beyond the cap, from where it is most."""
    for job in sorted(lent, key=lambda job: job.widest(efficiency) - job.dop):
        if lacking <= 0 or not look.room.may_take_back:
            return
        cap = job.widest(efficiency)
        lacking -= job.dop - cap
        yield look.room.shrink(job, cap, "others wait")


def _backlog_s(look: Look) -> float:
    """Seconds of work per GPU; requests out of sight are taken for like the others."""
    view = look.view
    queues = [queue for stage in (Stage.DIT, Stage.ENCODER) for _, queue in view.queues(stage)]
    num_waiting, num_working = sum(map(len, queues)), len(view.running(Stage.DIT))
    works_s = [job.work_s for job in look.working]
    mean_s = sum(works_s) / max(1, len(works_s))
    total_s = sum(queue.weight for queue in queues) + num_working * mean_s
    per_request_s = total_s / max(1, num_waiting + num_working)
    return per_request_s * len(view.requests) / look.num_denoisers


def _hungry(working: Iterable[Job], efficiency: float) -> list[Job]:
    """Groups below their cap that can be changed."""
    return [job for job in working if job.dop < job.widest(efficiency) and changeable(job)]
