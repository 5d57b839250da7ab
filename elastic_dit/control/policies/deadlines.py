"""Which deadlines can be met together, and what each takes (Moore and Hodgson's rule).

In the order of their deadlines, jobs are taken up while the GPU-seconds they need fit into the time
there is; when they no longer do, the job that needs most is let go: that saves most deadlines.
"""

from __future__ import annotations

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


def plan_deadlines(jobs: Iterable[Job], num_gpus: int, now: float) -> DeadlinePlan:
    """Divide jobs by what their deadlines ask for.

    Parameters
    ----------
    jobs : iterable of Job
    num_gpus : int
        GPUs that denoise.
    now : float
    """
    needs: dict[str, int] = {}
    chosen: list[tuple[float, Job]] = []
    lost: list[Job] = []
    booked = 0.0
    for job in sorted(jobs, key=lambda job: (job.deadline_at, job.record.sequence)):
        dop = _smallest_in_time(job, now)
        if dop is None:
            lost.append(job)
            continue
        needs[job.request_id] = dop
        gpu_s = dop * job.steps_left * job.step_s[dop]
        chosen.append((gpu_s, job))
        booked += gpu_s
        while booked > num_gpus * (job.deadline_at - now):
            # Among equals the lower priority is let go.
            dropped = max(chosen, key=lambda entry: (entry[0], -entry[1].record.request.priority))
            chosen.remove(dropped)
            booked -= dropped[0]
            lost.append(dropped[1])
            del needs[dropped[1].request_id]
    tight = _tight(chosen, needs, num_gpus, now)
    ordered = [job for _, job in chosen]
    return DeadlinePlan(tight=ordered[:tight], kept=ordered[tight:], lost=lost, needs=needs)


def _smallest_in_time(job: Job, now: float) -> int | None:
    if math.isinf(job.deadline_at):
        return 1
    for dop in job.step_s:
        margin_s = 0.0 if dop == job.dop else _MARGIN_S
        if now + job.remaining_s(dop) + margin_s <= job.deadline_at:
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
