"""From how many GPUs each job shall have to the actions that bring that about.

For policies that share all GPUs out anew at every look. Groups are any free GPUs of one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, islice
from typing import NamedTuple

from elastic_dit.control import actions
from elastic_dit.control.dispatch import nearest_gpu
from elastic_dit.control.policies.counts import (
    num_within_reach,
    stages_in_use,
    widest_machine,
)
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import Sight
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["ToShare", "reach", "to_share", "widen_in_turn"]


class ToShare(NamedTuple):
    """What there is to share out.

    Attributes
    ----------
    jobs : list of Job
        Those that denoise with steps to go and no order under way, and of each queue that a GPU
        takes work of the first in line, as many as could get one.
    num_gpus : int
        GPUs that are free or held by them.
    widest : int
        GPUs of the machine that has most: no group can be larger.
    """

    jobs: list[Job]
    num_gpus: int
    widest: int


def to_share(sight: Sight, view: ClusterView, now: float, *, in_line: int = 0) -> ToShare:
    """What there is to share out now.

    Parameters
    ----------
    sight : Sight
    view : ClusterView
    now : float
    in_line : int
        First in line of each queue at least, where not always the first go first.
    """
    working = [job for job in sight.working(view, now) if job.steady and job.steps_left > 0]
    keys = stages_in_use(view, working)
    num_gpus = num_within_reach(view, keys, working)
    jobs = working + sight.in_line(view, max(in_line, num_gpus))
    return ToShare(jobs, num_gpus, max(1, widest_machine(view, keys)))


def widen_in_turn(jobs: Sequence[Job], targets: dict[str, int], left: int, *, widest: int) -> None:
    """Double targets while GPUs are left and it saves time, each as often as can be, in turn."""
    for job in jobs:
        if not left:
            return
        dop = targets.get(job.request_id, 0)
        while 0 < dop <= left and 2 * dop <= widest and job.gain_s(dop) > 0:
            left -= dop
            dop *= 2
            targets[job.request_id] = dop


def reach(
    view: ClusterView, jobs: Sequence[Job], targets: Mapping[str, int]
) -> Iterator[actions.Action]:
    """Shrink and preempt, then start and grow, those first in `jobs` first.

    What is given up is free at its next boundary only; a later look gives it on.

    Parameters
    ----------
    view : ClusterView
    jobs : sequence of Job
        In order of precedence.
    targets : mapping of str to int
        Wanted DoP by request id; 0 or missing means to wait.
    """
    for job in jobs:
        target = targets.get(job.request_id, 0)
        if target >= job.dop:  # as with those that wait
            continue
        if target == 0:
            yield actions.Preempt(job.request_id, "others come first")
        else:
            kept = _members(job)[:target]
            yield actions.Resize(job.request_id, kept, f"DoP {target}: others come first")
    for job in jobs:
        target = targets.get(job.request_id, 0)
        if not target:
            continue
        if job.waits:
            yield from _start(view, job, target)
        elif target > job.dop and job.steady:
            yield from _grow(view, job, target)


def _start(view: ClusterView, job: Job, target: int) -> Iterator[actions.Action]:
    gpu = nearest_gpu(view, job.record)
    if gpu is None:
        return
    gpus: tuple[GpuId, ...] = (gpu,)
    if job.record.stage is Stage.DIT and target > 1:
        gpus = _widest(view, job.key, target, job.record.avoid)
        while len(gpus) & (len(gpus) - 1):  # degrees of parallelism are powers of two
            gpus = gpus[:-1]
    yield actions.Start(job.request_id, gpus, f"DoP {len(gpus)} of {target}")


def _grow(view: ClusterView, job: Job, target: int) -> Iterator[actions.Action]:
    here = _members(job)
    node = here[0] // view.config.slots_per_node
    first = node * view.config.slots_per_node
    there = range(first, first + view.config.slots_per_node)
    free = [gpu for gpu in there if view.is_free(job.key, gpu)]
    dop = target
    while dop > len(here):
        if len(free) >= dop - len(here):
            joined = (*here, *islice(free, dop - len(here)))
            yield actions.Resize(job.request_id, joined, f"DoP {dop} of {target}")
            return
        dop //= 2


def _members(job: Job) -> tuple[GpuId, ...]:
    assert job.group is not None, job
    return job.group.gpus


def _widest(
    view: ClusterView, key: StageKey, most: int, avoid: AbstractSet[GpuId]
) -> tuple[GpuId, ...]:
    """Free GPUs of the first machine that has the most of them, up to so many.

    Those to avoid only where no other is free.
    """
    free = [gpu for gpu in view.free(key) if gpu not in avoid] if avoid else []
    widest: list[GpuId] = []
    slots = view.config.slots_per_node
    for _, members in groupby(free or view.free(key), lambda gpu: gpu // slots):
        found = list(islice(members, most))
        if len(found) > len(widest):
            widest = found
        if len(widest) == most:
            break
    return tuple(widest)
