"""Which deadlines can be met together, and what each takes (Moore and Hodgson's rule).

In the order of their deadlines, jobs are taken up while the GPU-seconds they need fit into the time
there is; when they no longer do, the job that needs most is let go: that saves most deadlines.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

from elastic_dit.control.policies.jobs import Job

__all__ = ["DeadlinePlan", "plan_deadlines"]

_TIGHT_LOAD = 0.9
"""Part of the time to a deadline that must be booked before its jobs go ahead of all others."""
_MARGIN_S = 1.0
"""Time in hand that a change of DoP must leave: a step boundary has to be waited for."""


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """The outcome.

    Attributes
    ----------
    tight : list of Job
        Must run now at the DoP of `needs`, earliest deadline first.
    kept : list of Job
        Will be in time though others go first, or have no deadline.
    lost : list of Job
        Cannot be in time, or would cost several others theirs.
    needs : dict of str to int
        Smallest DoP that is in time, by request id, for all but the lost.
    """

    tight: list[Job]
    kept: list[Job]
    lost: list[Job]
    needs: dict[str, int]


def plan_deadlines(jobs: Iterable[Job], num_gpus: int, now: float, *, widest: int) -> DeadlinePlan:
    """Divide jobs by what their deadlines ask for.

    Parameters
    ----------
    jobs : iterable of Job
    num_gpus : int
        GPUs that denoise.
    now : float
    widest : int
        GPUs of the machine that has most: no group can be larger.
    """
    needs: dict[str, int] = {}
    chosen: dict[str, tuple[float, Job]] = {}
    largest: list[tuple[float, int, int, str]] = []
    lost: list[Job] = []
    booked = 0.0
    in_turn = sorted(jobs, key=lambda job: (job.deadline_at, job.record.sequence))
    for index, job in enumerate(in_turn):
        steps = job.steps_left
        dop = _smallest_in_time(job, steps, now, widest)
        if dop is None:
            lost.append(job)
            continue
        needs[job.request_id] = dop
        gpu_s = dop * steps * job.step_s[dop]
        chosen[job.request_id] = (gpu_s, job)
        # Among equals the lower priority is let go.
        entry = (-gpu_s, job.record.request.priority, index, job.request_id)
        heapq.heappush(largest, entry)
        booked += gpu_s
        while booked > num_gpus * (job.deadline_at - now):
            dropped = chosen.pop(heapq.heappop(largest)[-1])
            booked -= dropped[0]
            lost.append(dropped[1])
            del needs[dropped[1].request_id]
    ordered = list(chosen.values())
    tight = _tight(ordered, needs, num_gpus, now)
    kept = [job for _, job in ordered]
    return DeadlinePlan(tight=kept[:tight], kept=kept[tight:], lost=lost, needs=needs)


def _smallest_in_time(job: Job, steps: int, now: float, widest: int) -> int | None:
    if math.isinf(job.deadline_at):
        return 1
    left_s, present = job.deadline_at - now - job.times.decode_s, job.dop
    for dop, step_s in job.step_s.items():
        if dop > widest:
            break
        margin_s = 0.0 if dop == present else _MARGIN_S
        if steps * step_s + margin_s <= left_s:
            return dop
    return None


def _tight(
    chosen: list[tuple[float, Job]], needs: dict[str, int], num_gpus: int, now: float
) -> int:
    """How many of the earliest deadlines must come first: up to the last that leaves no slack."""
    booked, tight = 0.0, 0
    for index, (gpu_s, job) in enumerate(chosen, start=1):
        booked += gpu_s
        crowded = booked >= _TIGHT_LOAD * num_gpus * (job.deadline_at - now)
        if crowded or needs[job.request_id] > 1:
            tight = index
    return tight
