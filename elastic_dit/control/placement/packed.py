"""The hybrid loop with stages that share GPUs where memory allows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.assign import Exclusive, new_plan, shares_of, usable
from elastic_dit.control.placement.demand import packing_demand
from elastic_dit.control.placement.machines import Machines
from elastic_dit.control.placement.packing import Demand, PackGpu, pack, throughput_hz
from elastic_dit.control.placement.regime import Regime
from elastic_dit.control.placement.signs import read_signs
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, PlacementPlan

__all__ = ["Packed"]

_LEAST_GAIN = 0.02
"""Part by which throughput must rise for anything to move: less is within what times are known."""


class Packed:
    """Solves for the placement anew when the workload changes or a stage falls behind.

    As in `elastic_dit.control.placement.hybrid`, a change of workload comes first. The reactive
    signs (a stage is busy, its queue long and its delay growing) ask the same solver again, and a
    machine more where that does not help and one is allowed. While all is idle a machine goes.

    Parameters
    ----------
    config : PlacementConfig
    models : sequence of str
    """

    def __init__(self, config: PlacementConfig, models: Sequence[str]) -> None:
        self._config = config
        self._models = tuple(models)
        self._exclusive = Exclusive(models)
        self._regime = Regime()
        self._machines = Machines(config)
        self._members: frozenset[tuple[int, str, int]] = frozenset()
        self._epoch = 0
        self._solved_at = -math.inf
        self._pending = False
        self._agreed: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Packed({', '.join(self._models)})"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        """See `PlacementPolicy`."""
        gpus = usable(snapshot)
        self._pending |= self._regime.changed(snapshot)
        demand = packing_demand(snapshot, self._models, self._regime.since, self._config)
        self._adopt(snapshot, gpus)
        if _members(gpus) != self._members:
            return self._place(snapshot, gpus, demand, "GPUs came or went", now)
        if demand is None or not all(gpu.is_settled for gpu in gpus):
            self._agreed.clear()
            return None
        return self._look(snapshot, gpus, demand, now)

    def _adopt(self, snapshot: ClusterSnapshot, gpus: Sequence[GpuSnapshot]) -> None:
        """Go on from the plan in force, if another scheduler made it: nothing moves for that.

        GPUs for which it wants nothing count as new.
        """
        if snapshot.plan_epoch == self._epoch:
            return
        self._epoch = snapshot.plan_epoch
        held = {key for gpu in gpus for key in gpu.wanted}
        if {StageKey(model, stage) for model in self._models for stage in Stage} <= held:
            self._members = _members([gpu for gpu in gpus if gpu.wanted])

    def _look(
        self, snapshot: ClusterSnapshot, gpus: Sequence[GpuSnapshot], demand: Demand, now: float
    ) -> PlacementPlan | None:
        behind, idle = self._behind(snapshot), self._idle(snapshot, gpus)
        if now - self._solved_at < self._config.cooldown_s:
            return None
        if self._pending or behind:
            self._solved_at = now
            why = "workload changed" if self._pending else behind
            self._pending = False
            plan = self._improve(snapshot, gpus, demand, why, now)
            if plan is None and behind and self._machines.ask(gpus):
                return self._planned(snapshot, {}, f"{behind}; no GPU to spare", now)
            return plan
        if idle:
            smallest = min(Counter(gpu.node for gpu in gpus).values())
            staying = self._machines.staying(gpus, len(gpus) - smallest)
            if len(staying) < len(gpus):
                return self._place(snapshot, staying, demand, "idle", now)
        return None

    def _behind(self, snapshot: ClusterSnapshot) -> str:
        """Why a stage needs more, where one has shown so at enough looks in a row; else empty."""
        signs = read_signs(snapshot)
        for stage in Stage:
            shown = stage in signs and signs[stage].is_overloaded(self._config)
            self._agreed[stage] = self._agreed[stage] + 1 if shown else 0
            if self._agreed[stage] >= self._config.confirm_looks:
                return f"{stage} {signs[stage]}"
        return ""

    def _idle(self, snapshot: ClusterSnapshot, gpus: Sequence[GpuSnapshot]) -> bool:
        busy = sum(gpu.utilisation for gpu in gpus) / max(1, len(gpus))
        shown = bool(gpus) and busy < self._config.scale_in_utilisation and not snapshot.waiting
        self._agreed["idle"] = self._agreed["idle"] + 1 if shown else 0
        return self._agreed["idle"] >= self._config.confirm_looks

    def _place(
        self,
        snapshot: ClusterSnapshot,
        gpus: Sequence[GpuSnapshot],
        demand: Demand | None,
        why: str,
        now: float,
    ) -> PlacementPlan | None:
        """A placement for these GPUs, whatever they hold now."""
        self._members = _members(gpus)
        best = pack([_pack_gpu(gpu) for gpu in gpus], demand) if demand else None
        if best is None:
            counts = shares_of(self._config.ratio, len(gpus))
            return self._planned(snapshot, self._exclusive.residency(gpus, counts), why, now)
        reason = f"{why}: up to {60 * best.throughput_hz:.2f} per minute"
        return self._planned(snapshot, best.residency, reason, now)

    def _improve(
        self,
        snapshot: ClusterSnapshot,
        gpus: Sequence[GpuSnapshot],
        demand: Demand,
        why: str,
        now: float,
    ) -> PlacementPlan | None:
        """A placement that serves more, by more than its loads cost."""
        choices = [_pack_gpu(gpu) for gpu in gpus]
        best = pack(choices, demand)
        present_hz = throughput_hz(choices, demand, {gpu.gpu: gpu.held for gpu in choices})
        if best is None or best.throughput_hz <= (1 + _LEAST_GAIN) * present_hz:
            return None
        rates = f"{60 * best.throughput_hz:.2f} instead of {60 * present_hz:.2f} per minute"
        return self._planned(snapshot, best.residency, f"{why}: up to {rates}", now)

    def _planned(
        self,
        snapshot: ClusterSnapshot,
        residency: Mapping[GpuId, frozenset[StageKey]],
        why: str,
        now: float,
    ) -> PlacementPlan | None:
        self._agreed.clear()
        wish = self._machines.wish()
        wanted = {gpu.gpu: frozenset(gpu.wanted) for gpu in snapshot.gpus}
        if not wish.differs and all(wanted[gpu] == keys for gpu, keys in residency.items()):
            return None
        self._solved_at = now
        self._epoch = snapshot.plan_epoch + 1
        return new_plan(snapshot, residency, why, nodes=wish.nodes, retire=wish.retire)


def _members(gpus: Sequence[GpuSnapshot]) -> frozenset[tuple[int, str, int]]:
    return frozenset((gpu.gpu, gpu.name, len(gpu.failed)) for gpu in gpus)


def _pack_gpu(gpu: GpuSnapshot) -> PackGpu:
    return PackGpu(
        gpu=gpu.gpu,
        kind=gpu.kind,
        memory_bytes=gpu.memory_bytes,
        held=frozenset(gpu.wanted),
        unable=frozenset(
            StageKey(model, Stage(stage))
            for model, _, stage in (name.rpartition("/") for name in gpu.failed)
        ),
        free_in_s=math.inf if gpu.remaining_s is None else gpu.remaining_s,
    )
