"""Numbers of GPUs per stage become stages on GPUs, moving as little as can be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elastic_dit.config import StageRatio
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, PlacementPlan

__all__ = ["Exclusive", "counts_text", "new_plan", "present_stages", "shares_of", "usable"]

_FILL_ORDER = (Stage.DIT, Stage.ENCODER, Stage.DECODER)
"""The DiT takes the lowest numbers, so that its GPUs form aligned blocks."""

_Roles = dict[GpuId, tuple[Stage, ...]]


class Exclusive:
    """One stage per GPU, that of every model.

    A GPU that is to change is one that is free soonest, so that little drains. With fewer GPUs
    than stages every GPU holds all of them. A GPU that could not load a stage is given another.

    Parameters
    ----------
    models : sequence of str
        Models to serve; a GPU holds its stage of each of them.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)

    def __repr__(self) -> str:
        return f"Exclusive({', '.join(self.models)})"

    def residency(
        self, gpus: Sequence[GpuSnapshot], counts: Mapping[Stage, int]
    ) -> dict[GpuId, frozenset[StageKey]]:
        """Stages on GPUs.

        Parameters
        ----------
        gpus : sequence of GpuSnapshot
        counts : mapping of Stage to int
            In sum no more than there are GPUs; what is over holds nothing.
        """
        return {gpu: self._keys(stages) for gpu, stages in self._roles(gpus, counts).items()}

    def _roles(self, gpus: Sequence[GpuSnapshot], counts: Mapping[Stage, int]) -> _Roles:
        able = {gpu.gpu: self._able(gpu) for gpu in gpus}
        if len(gpus) < len(Stage):
            return {gpu: tuple(sorted(stages)) for gpu, stages in able.items()}
        left = {stage: counts.get(stage, 0) for stage in Stage}
        roles: _Roles = {}
        for gpu in sorted(gpus, key=_keeps_first):
            _give(roles, left, gpu.gpu, present_stages(gpu) & able[gpu.gpu])
        for gpu in gpus:
            if gpu.gpu not in roles:
                _give(roles, left, gpu.gpu, able[gpu.gpu])
        for gpu in gpus:
            if gpu.gpu not in roles and any(left.values()):
                _swap(roles, left, gpu.gpu, able)
        return {gpu.gpu: roles.get(gpu.gpu, ()) for gpu in gpus}

    def _able(self, gpu: GpuSnapshot) -> frozenset[Stage]:
        """Stages that it did not fail to load."""
        return frozenset(
            stage
            for stage in Stage
            if not any(f"{model}/{stage}" in gpu.failed for model in self.models)
        )

    def _keys(self, stages: Sequence[Stage]) -> frozenset[StageKey]:
        return frozenset(StageKey(model, stage) for model in self.models for stage in stages)


def _keeps_first(gpu: GpuSnapshot) -> tuple[int, float, int]:
    """Those keep their stage first that hold few and are busy longest."""
    remaining_s = math.inf if gpu.remaining_s is None else gpu.remaining_s
    return (len(present_stages(gpu)), -remaining_s, gpu.gpu)


def _give(roles: _Roles, left: dict[Stage, int], gpu: GpuId, among: frozenset[Stage]) -> None:
    """Let a GPU take the first stage of `among` that still lacks some."""
    for stage in _FILL_ORDER:
        if stage in among and left[stage]:
            left[stage] -= 1
            roles[gpu] = (stage,)
            return


def _swap(
    roles: _Roles, left: dict[Stage, int], gpu: GpuId, able: Mapping[GpuId, frozenset[Stage]]
) -> None:
    """Let a GPU that can take nothing of what is left change with one that can.

    Where none can, it holds one stage more than the counts say, rather than nothing.
    """
    lacking = [stage for stage in _FILL_ORDER if left[stage]]
    for other, (role, *_) in roles.items():
        takes = [stage for stage in lacking if stage in able[other]]
        if takes and role in able[gpu]:
            roles[other], roles[gpu] = (takes[0],), (role,)
            left[takes[0]] -= 1
            return
    stages = tuple(stage for stage in _FILL_ORDER if stage in able[gpu])[:1]
    if stages:
        roles[gpu] = stages


def present_stages(gpu: GpuSnapshot) -> frozenset[Stage]:
    """Stages a GPU holds or is to hold."""
    return frozenset(key.stage for key in (*gpu.wanted, *gpu.resident))


def usable(snapshot: ClusterSnapshot) -> list[GpuSnapshot]:
    """GPUs that are not about to leave."""
    return [gpu for gpu in snapshot.gpus if not gpu.retiring]


def shares_of(ratio: StageRatio, gpus: int) -> dict[Stage, int]:
    """GPUs per stage in a configured ratio.

    >>> list(shares_of(StageRatio(encoder=1, dit=6, decoder=1), 16).values())
    [2, 12, 2]
    """
    shares = (ratio.encoder, ratio.dit, ratio.decoder)
    return split_by_ratio(gpus, dict(zip(Stage, shares, strict=True)))


def counts_text(counts: Mapping[Stage, int]) -> str:
    """``E:T:D`` for people.

    >>> counts_text({Stage.DIT: 6, Stage.ENCODER: 1, Stage.DECODER: 1})
    '1:6:1'
    """
    return ":".join(str(counts.get(stage, 0)) for stage in Stage)


def new_plan(
    snapshot: ClusterSnapshot,
    residency: Mapping[GpuId, frozenset[StageKey]],
    reason: str,
    *,
    nodes: int | None = None,
    retire: tuple[str, ...] = (),
) -> PlacementPlan:
    """A plan of the next epoch."""
    return PlacementPlan(
        epoch=snapshot.plan_epoch + 1,
        residency=dict(residency),
        reason=reason,
        nodes=nodes,
        retire=retire,
    )
