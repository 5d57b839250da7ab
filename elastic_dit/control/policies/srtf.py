"""Shortest remaining time first, preemptive, on groups of one size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from elastic_dit.control import actions
from elastic_dit.control.dispatch import first_come, prefetches, register_dispatch
from elastic_dit.control.policies.contenders import share_out
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import Sight
from elastic_dit.control.policies.targets import reach, to_share
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.request import Stage

__all__ = ["Srtf"]


class Srtf:
    """The policy. Large requests starve while small ones keep coming.

    Parameters
    ----------
    dop : int
        GPUs of every group; fewer where no machine has or a request cannot use so many.
    """

    watches_steps = False

    def __init__(self, dop: int = 1) -> None:
        self._dop = dop
        self._sight = Sight()

    def __repr__(self) -> str:
        return f"Srtf({self._dop})"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Work to do, in pixels x steps: no step time is known here."""
        return (request.request.pixels * request.steps_left,)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Let the shortest run."""
        yield from first_come(view, Stage.DECODER)
        jobs, num_gpus, widest = to_share(self._sight, view, now)
        jobs.sort(key=lambda job: (job.steps_left * job.step_s[1], job.record.sequence))

        def share(jobs: list[Job]) -> dict[str, int]:
            targets: dict[str, int] = {}
            left = num_gpus
            for job in jobs:
                dop = view.allowed_dop(job.record, min(self._dop, widest))
                if dop > left:
                    break
                targets[job.request_id] = dop
                left -= dop
            return targets

        yield from reach(view, jobs, share_out(view, jobs, share))
        yield from prefetches(view)


for _dop in (1, 2, 4):
    register_dispatch(f"srtf-{_dop}", partial(Srtf, _dop))
