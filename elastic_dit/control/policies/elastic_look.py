"""One decision of `elastic` under way: what it sees, and what both of its regimes do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elastic_dit.control import actions
from elastic_dit.control.policies import counts
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.room import Room
from elastic_dit.control.policies.sight import Sight
from elastic_dit.control.view import ClusterView
from elastic_dit.request import StageKey

__all__ = ["MOVE_S", "Look", "changeable"]

MOVE_S = 0.05
"""What a change of group must save, at least, seconds."""
_EFFICIENCY_BY_LOAD = ((1.5, 1.0), (0.875, 0.9), (0.0, 0.8))
"""Jobs per GPU from which on a DoP must be so efficient."""
_LAST_STEPS = 1
"""A group this near its end is left alone: its GPUs are free before a change would come."""


@dataclass(slots=True)
class Look:
    """One decision.

    Attributes
    ----------
    view : ClusterView
    now : float
    sight : Sight
    room : Room
    working : list of Job
        The groups in sight.
    keys : frozenset of StageKey
        Stages that are in use.
    started : list of Job
        Those started so far.
    again : bool
        Whether there is more to decide than could be seen or done at once.
    """

    view: ClusterView
    now: float
    sight: Sight
    room: Room
    working: list[Job]
    keys: frozenset[StageKey] = field(init=False)
    started: list[Job] = field(init=False, default_factory=list)
    again: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.keys = counts.stages_in_use(self.view, self.working)

    @property
    def num_denoisers(self) -> int:
        """GPUs that denoise, busy or not."""
        return counts.num_denoisers(self.view, self.keys)

    @property
    def widest(self) -> int:
        """GPUs of the machine that denoises with most, or a bound of it where there are many."""
        if not self.sight.whole:
            return self.view.config.slots_per_node
        return max(1, counts.widest_machine(self.view, self.keys))

    @property
    def num_free(self) -> int:
        """GPUs that somebody could use."""
        return counts.num_free(self.view, self.keys)

    @property
    def efficiency(self) -> float:
        """What a DoP must reach at the present load."""
        load = len(self.view.requests) / self.num_denoisers
        return next(needed for least, needed in _EFFICIENCY_BY_LOAD if load >= least)

    def start(self, job: Job, cap: int) -> Iterator[actions.Action]:
        """Start what a request waits for, on up to `cap` GPUs."""
        yield from self.room.start(self.view, job, cap)
        if not job.waits:
            self.sight.forget(job.record)
            self.started.append(job)

    def spread(self, jobs: Iterable[Job]) -> Iterator[actions.Action]:
        """Double those groups that gain most per GPU."""
        free = {key for key in self.keys if self.view.free(key)}
        able = [
            (-job.gain_s(job.dop) / job.dop, number, job)
            for number, job in enumerate(jobs)
            if job.key in free and changeable(job) and job.gain_s(job.dop) > MOVE_S
        ]
        for _, _, job in sorted(able):
            yield from self.room.grow(self.view, job, 2 * job.dop)


def changeable(job: Job) -> bool:
    """Whether a group can be changed, and it is worth it."""
    return job.steady and job.steps_left > _LAST_STEPS
