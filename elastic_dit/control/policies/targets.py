"""From how many GPUs each job shall have to the actions that bring that about.

For policies that share all GPUs out anew at every look. Groups are any free GPUs of one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from elastic_dit.control import actions
from elastic_dit.control.dispatch import nearest_gpu
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["reach", "shareable_gpus", "to_share"]


def to_share(jobs: Iterable[Job]) -> list[Job]:
    """Jobs that wait, or denoise with steps to go and no order under way."""
    return [job for job in jobs if job.waits or (job.steady and job.steps_left > 0)]


def shareable_gpus(view: ClusterView, jobs: Sequence[Job]) -> int:
    """GPUs that are free for the jobs' models or held by those that can be changed."""
    free = {gpu for key in {job.key for job in jobs} for gpu in view.free(key)}
    return len(free) + sum(job.dop for job in jobs if not job.waits)


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
        if job.waits or target >= job.dop:
            continue
        if target == 0:
            yield actions.Preempt(job.request_id, "others come first")
        else:
            kept = _members(job)[:target]
            yield actions.Resize(job.request_id, kept, f"DoP {target}: others come first")
    for job in jobs:
        target = targets.get(job.request_id, 0)
        if job.waits and target:
            yield from _start(view, job, target)
        elif not job.waits and job.steady and target > job.dop:
            yield from _grow(view, job, target)


def _start(view: ClusterView, job: Job, target: int) -> Iterator[actions.Action]:
    gpu = nearest_gpu(view, job.record)
    if gpu is None:
        return
    gpus: tuple[GpuId, ...] = (gpu,)
    if job.record.stage is Stage.DIT and target > 1:
        gpus = max(_nodes(view, job.key, target), key=len)
        while len(gpus) & (len(gpus) - 1):  # degrees of parallelism are powers of two
            gpus = gpus[:-1]
    yield actions.Start(job.request_id, gpus, f"DoP {len(gpus)} of {target}")


def _grow(view: ClusterView, job: Job, target: int) -> Iterator[actions.Action]:
    here = _members(job)
    node = here[0] // view.config.slots_per_node
    free = [gpu for gpu in view.free(job.key) if gpu // view.config.slots_per_node == node]
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


def _nodes(view: ClusterView, key: StageKey, most: int) -> list[tuple[GpuId, ...]]:
    """Free GPUs by node, at most so many of each."""
    nodes: dict[int, list[GpuId]] = {}
    for gpu in view.free(key):
        members = nodes.setdefault(gpu // view.config.slots_per_node, [])
        if len(members) < most:
            members.append(gpu)
    return [tuple(members) for members in nodes.values()]
