"""Earliest deadline first, best fit, after the policy of that name in GF-DiT (arXiv 2606.13501).

In the order of their deadlines, each request gets the smallest DoP that is in time, or the largest
there is where none is; what is left over widens groups in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from elastic_dit.control import actions
from elastic_dit.control.dispatch import first_come, prefetches, register_dispatch
from elastic_dit.control.policies.contenders import share_out
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import Sight
from elastic_dit.control.policies.targets import reach, to_share, widen_in_turn
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.request import Stage

__all__ = ["EdfBestFit"]


class EdfBestFit:
    """The policy. Requests without a deadline come last, in order of acceptance."""

    watches_steps = False

    def __init__(self) -> None:
        self._sight = Sight()

    def __repr__(self) -> str:
        return "EdfBestFit()"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """The deadline."""
        deadline_s = request.request.deadline_s
        return (math.inf if deadline_s is None else request.accepted_at + deadline_s,)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Share the GPUs out anew."""
        yield from first_come(view, Stage.DECODER)
        jobs, num_gpus, widest = to_share(self._sight, view, now)
        jobs.sort(key=lambda job: (job.deadline_at, job.record.sequence))
        share = partial(best_fit, num_gpus=num_gpus, now=now, widest=widest)
        yield from reach(view, jobs, share_out(view, jobs, share))
        yield from prefetches(view)


def best_fit(jobs: list[Job], num_gpus: int, now: float, *, widest: int) -> dict[str, int]:
    """DoP by request id, none above `widest`, for jobs in order of their deadlines."""
    left = num_gpus
    targets: dict[str, int] = {}
    for job in jobs:
        most = min(left, widest)
        fitting = [dop for dop in job.step_s if dop <= most]
        if not fitting:
            break
        in_time = (dop for dop in fitting if now + job.remaining_s(dop) <= job.deadline_at)
        targets[job.request_id] = next(in_time, fitting[-1])
        left -= targets[job.request_id]
    widen_in_turn(jobs, targets, left, widest=widest)
    return targets


register_dispatch("edf", EdfBestFit)
