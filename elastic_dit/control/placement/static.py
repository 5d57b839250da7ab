"""The slow decision: which stages are resident on which GPU.

A policy is one class with `plan`, registered under the name that `PlacementConfig.policy` uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, PlacementPlan

__all__ = [
    "Colocated",
    "PlacementPolicy",
    "StaticRatio",
    "make_placement",
    "placement_policies",
    "register_placement",
]


class PlacementPolicy(Protocol):
    """The slow decision. Deterministic; may keep state between calls."""

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        """The plan to put in force, of an epoch above the snapshot's; None for no change.

        Parameters
        ----------
        snapshot : ClusterSnapshot
        now : float
            Seconds on the snapshot's clock.
        """
        ...


_Maker = Callable[[PlacementConfig, Sequence[str]], PlacementPolicy]

_REGISTRY: dict[str, _Maker] = {}


def register_placement(name: str, make: _Maker) -> None:
    """Make a policy known under a name; `make` gets the settings and the models' names."""
    _REGISTRY[name] = make


def placement_policies() -> tuple[str, ...]:
    """Names of the registered policies, sorted."""
    return tuple(sorted(_REGISTRY))


def make_placement(config: PlacementConfig, models: Sequence[str]) -> PlacementPolicy:
    """A fresh policy as configured.

    Raises
    ------
    ConfigError
        Where no policy has that name.
    """
    if config.policy not in _REGISTRY:
        known = ", ".join(placement_policies())
        raise ConfigError("placement.policy", config.policy, f"one of {known}")
    return _REGISTRY[config.policy](config, models)


_FILL_ORDER = (Stage.DIT, Stage.ENCODER, Stage.DECODER)
"""The DiT takes the lowest numbers, so that its GPUs form aligned blocks."""


class StaticRatio:
    """GPUs in a fixed ratio E:T:D, moving as few stages as can be when GPUs come or go.

    With fewer GPUs than stages every GPU holds all of them. A GPU that could not load a stage
    is given another.

    Parameters
    ----------
    ratio : StageRatio
    models : sequence of str
        Models to serve; a GPU holds its stage of each of them.
    """

    def __init__(self, ratio: StageRatio, models: Sequence[str]) -> None:
        self._shares = {
            Stage.ENCODER: ratio.encoder,
            Stage.DIT: ratio.dit,
            Stage.DECODER: ratio.decoder,
        }
        self._models = tuple(models)

    def __repr__(self) -> str:
        return f"StaticRatio({':'.join(map(str, self._shares.values()))})"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:  # noqa: ARG002
        """The ratio over the GPUs there are."""
        gpus = [gpu for gpu in snapshot.gpus if not gpu.retiring]
        stages = self._assign(gpus)
        residency = {gpu: self._keys(held) for gpu, held in stages.items()}
        if all(residency[gpu.gpu] == frozenset(gpu.wanted) for gpu in gpus):
            return None
        counts = (sum(stage in held for held in stages.values()) for stage in Stage)
        return PlacementPlan(
            epoch=snapshot.plan_epoch + 1,
            residency=residency,
            reason=f"E:T:D = {':'.join(map(str, counts))} on {len(gpus)} GPUs",
        )

    def _assign(self, gpus: Sequence[GpuSnapshot]) -> dict[GpuId, tuple[Stage, ...]]:
        able = {gpu.gpu: self._able(gpu) for gpu in gpus}
        if len(gpus) < len(Stage):
            return {gpu: tuple(sorted(stages)) for gpu, stages in able.items()}
        left = split_by_ratio(len(gpus), self._shares)
        roles: dict[GpuId, tuple[Stage, ...]] = {}
        for gpu in sorted(gpus, key=lambda gpu: (len(_present(gpu)), gpu.gpu)):
            self._give(roles, left, gpu.gpu, _present(gpu) & able[gpu.gpu])
        for gpu in gpus:
            if gpu.gpu not in roles:
                self._give(roles, left, gpu.gpu, able[gpu.gpu])
        for gpu in gpus:
            if gpu.gpu not in roles:
                self._swap(roles, left, gpu.gpu, able)
        return roles

    @staticmethod
    def _swap(
        roles: dict[GpuId, tuple[Stage, ...]],
        left: dict[Stage, int],
        gpu: GpuId,
        able: Mapping[GpuId, frozenset[Stage]],
    ) -> None:
        """Let a GPU that can take nothing of what is left change with one that can.

        Where none can, it holds one stage more than the ratio says, rather than nothing.
        """
        lacking = [stage for stage in _FILL_ORDER if left[stage]]
        for other, (role, *_) in roles.items():
            takes = [stage for stage in lacking if stage in able[other]]
            if takes and role in able[gpu]:
                roles[other], roles[gpu] = (takes[0],), (role,)
                left[takes[0]] -= 1
                return
        roles[gpu] = tuple(stage for stage in _FILL_ORDER if stage in able[gpu])[:1]

    @staticmethod
    def _give(
        roles: dict[GpuId, tuple[Stage, ...]],
        left: dict[Stage, int],
        gpu: GpuId,
        among: frozenset[Stage],
    ) -> None:
        """Let a GPU take the first stage of `among` that still lacks some."""
        for stage in _FILL_ORDER:
            if stage in among and left[stage]:
                left[stage] -= 1
                roles[gpu] = (stage,)
                return

    def _able(self, gpu: GpuSnapshot) -> frozenset[Stage]:
        """Stages that it did not fail to load."""
        return frozenset(
            stage
            for stage in Stage
            if not any(f"{model}/{stage}" in gpu.failed for model in self._models)
        )

    def _keys(self, stages: Sequence[Stage]) -> frozenset[StageKey]:
        return frozenset(StageKey(model, stage) for model in self._models for stage in stages)


class Colocated:
    """Every GPU holds every stage of every model, except what it could not load.

    Decoding then follows denoising in place, and all GPUs can form groups; it takes memory for
    all stages on each.

    Parameters
    ----------
    models : sequence of str
        Models to serve.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._keys = frozenset(StageKey(model, stage) for model in models for stage in Stage)

    def __repr__(self) -> str:
        return f"Colocated({len(self._keys)} stages)"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:  # noqa: ARG002
        """Everything everywhere."""
        residency = {
            gpu.gpu: frozenset(
                key for key in self._keys if f"{key.model}/{key.stage}" not in gpu.failed
            )
            for gpu in snapshot.gpus
            if not gpu.retiring
        }
        wanted = {gpu.gpu: frozenset(gpu.wanted) for gpu in snapshot.gpus if not gpu.retiring}
        if residency == wanted:
            return None
        return PlacementPlan(
            epoch=snapshot.plan_epoch + 1,
            residency=residency,
            reason=f"all stages on {len(residency)} GPUs",
        )


def _present(gpu: GpuSnapshot) -> frozenset[Stage]:
    """Stages a GPU holds or is to hold."""
    return frozenset(key.stage for key in (*gpu.wanted, *gpu.resident))


register_placement("static", lambda config, models: StaticRatio(config.ratio, models))
register_placement("colocated", lambda _, models: Colocated(models))
