"""TetriServe (arXiv 2510.01565), from its description: as many requests in time as can be.

A request is *critical* where it can still be in time, but no more if it gets no GPU until the next
look. Each critical one asks for the DoP that is in time at the fewest GPU-seconds, and the GPUs are
packed so that most of them get it. With one width and equal worth for each, the paper's group
knapsack is solved by taking the narrowest first. What is left goes to the others in the order of
their deadlines, and then widens groups in the same order.

The paper looks at the start of rounds of fixed length; as in GF-DiT's *continuous* form, which
leaves fewer GPUs idle, every change is a look here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from elastic_dit.control import actions
from elastic_dit.control.dispatch import first_come, prefetches, register_dispatch
from elastic_dit.control.policies.contenders import share_out
from elastic_dit.control.policies.edf import EdfBestFit
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.targets import reach, to_share, widen_in_turn
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage

__all__ = ["TetriServe"]

_IN_LINE = 48
"""Waiting requests of one queue to look at: those before may all be late beyond help."""


class TetriServe(EdfBestFit):
    """The policy. Queues are in the order of deadlines, as those of `EdfBestFit`."""

    def __repr__(self) -> str:
        return "TetriServe()"

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Share the GPUs out anew."""
        yield from first_come(view, Stage.DECODER)
        jobs, num_gpus, widest = to_share(self._sight, view, now, in_line=_IN_LINE)
        jobs.sort(key=lambda job: (job.deadline_at, job.record.sequence))
        share = partial(pack, num_gpus=num_gpus, now=now, widest=widest)
        yield from reach(view, jobs, share_out(view, jobs, share))
        yield from prefetches(view)


def pack(jobs: Sequence[Job], num_gpus: int, now: float, *, widest: int) -> dict[str, int]:
    """DoP by request id, none above `widest`, for jobs in order of their deadlines."""
    left, targets = num_gpus, {}
    most = min(num_gpus, widest)
    pressed = ((_least_in_time(job, most, now), job) for job in jobs if not _may_wait(job, now))
    critical = [(need, job) for need, job in pressed if need]
    for need, job in sorted(critical, key=lambda pair: pair[0]):
        if need > left:
            break
        targets[job.request_id] = need
        left -= need
    for job in jobs:
        if not left:
            break
        if job.request_id not in targets:
            need = _least_in_time(job, min(left, widest), now) or 1
            targets[job.request_id] = need
            left -= need
    widen_in_turn(jobs, targets, left, widest=widest)
    return targets


def _least_in_time(job: Job, most: int, now: float) -> int:
    """The DoP that is in time at the fewest GPU-seconds, 0 where none is."""
    left_s = job.deadline_at - now
    in_time = [dop for dop in job.step_s if dop <= most and job.remaining_s(dop) <= left_s]
    return min(in_time, key=lambda dop: dop * job.step_s[dop], default=0)


def _may_wait(job: Job, now: float) -> bool:
    """Whether it can be in time though it gets no GPU for another of its steps."""
    if math.isinf(job.deadline_at):
        return True
    fastest_s = job.times.fastest_s
    finish_s = (1 + job.steps_left) * fastest_s + job.times.decode_s
    return now + finish_s <= job.deadline_at


register_dispatch("tetriserve", TetriServe)
