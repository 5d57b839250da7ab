"""How many GPUs there are for a purpose, counted in a time that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.sight import GPUS_IN_SIGHT
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey

__all__ = ["num_denoisers", "num_free", "num_within_reach", "stages_in_use", "widest_machine"]


def stages_in_use(view: ClusterView, working: Iterable[Job]) -> frozenset[StageKey]:
    """The DiT stages of models in use, and the encoders that somebody waits for."""
    keys = {job.key for job in working}.union(key for key, _ in view.queues(Stage.DIT))
    for key, _ in view.queues(Stage.ENCODER):
        keys |= {key, StageKey(key.model, Stage.DIT)}
    return frozenset(keys)


def num_denoisers(view: ClusterView, keys: Iterable[StageKey]) -> int:
    """GPUs that denoise, busy or not."""
    denoise = (len(view.serving(key)) for key in keys if key.stage is Stage.DIT)
    return max(denoise, default=1) or 1


def num_free(view: ClusterView, keys: Iterable[StageKey]) -> int:
    """GPUs that somebody could use; one that is free for several stages counts for each."""
    return sum(len(view.free(key)) for key in keys)


def widest_machine(view: ClusterView, keys: Iterable[StageKey]) -> int:
    """GPUs that denoise on the machine that has most of them, busy or not."""
    return max((view.widest_machine(key) for key in keys if key.stage is Stage.DIT), default=0)


def num_within_reach(view: ClusterView, keys: Iterable[StageKey], working: Iterable[Job]) -> int:
    """GPUs that are free to denoise, as far as they matter, or held by groups in sight."""
    denoise = [key for key in keys if key.stage is Stage.DIT]
    free = {gpu for key in denoise for gpu in islice(view.free(key), GPUS_IN_SIGHT)}
    return len(free) + sum([job.dop for job in working])
