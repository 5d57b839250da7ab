"""Who could use the GPUs that are shared out to denoise, and who has to wait for others first.

A request that is encoded on other GPUs gains nothing from one that denoises before that is done:
kept for it or taken from another, the GPU would be idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from elastic_dit.control.policies.counts import stages_in_use
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import GPUS_IN_SIGHT
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["contenders", "share_out"]


def contenders(view: ClusterView, jobs: Iterable[Job]) -> list[Job]:
    """Those that hold such a GPU or could start on one, and have no other to start on now.

    Parameters
    ----------
    view : ClusterView
    jobs : iterable of Job
        In order of precedence, those that denoise among them.
    """
    jobs = list(jobs)
    gpus = _to_share_out(view, jobs)
    elsewhere: dict[StageKey, int] = {}
    found = []
    for job in jobs:
        if job.waits:
            key = job.record.key
            if key not in elsewhere:
                elsewhere[key] = _num_elsewhere(view, key, gpus, most=len(jobs))
            if elsewhere[key]:
                elsewhere[key] -= 1
                continue
        found.append(job)
    return found


def share_out(
    view: ClusterView, jobs: list[Job], share: Callable[[list[Job]], dict[str, int]]
) -> dict[str, int]:
    """DoP by request id: what `share` gives contenders alone, and others among all.

    Parameters
    ----------
    view : ClusterView
    jobs : list of Job
        In order of precedence.
    share : callable
        DoP by request id for jobs in order of precedence.
    """
    targets = share(jobs)
    able = contenders(view, jobs)
    if len(able) == len(jobs):
        return targets
    for job in able:
        targets.pop(job.request_id, None)
    return targets | share(able)


def _to_share_out(view: ClusterView, jobs: Iterable[Job]) -> set[GpuId]:
    """GPUs that are free to denoise, as far as they matter, or held by those that do."""
    working = [job for job in jobs if not job.waits]
    keys = (key for key in stages_in_use(view, working) if key.stage is Stage.DIT)
    gpus = {gpu for key in keys for gpu in islice(view.free(key), GPUS_IN_SIGHT)}
    return gpus.union(*(job.group.gpus for job in working if job.group is not None))


def _num_elsewhere(view: ClusterView, key: StageKey, gpus: set[GpuId], *, most: int) -> int:
    """How many of those that wait for a stage, up to `most`, need none of these GPUs."""
    serving = view.serving(key)
    if not any(gpu in serving for gpu in gpus):
        return most
    return sum(gpu not in gpus for gpu in islice(view.free(key), GPUS_IN_SIGHT))
