"""How many GPUs each stage has, on which they are, and since when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.assign import (
    Exclusive,
    counts_text,
    new_plan,
    present_stages,
    shares_of,
)
from elastic_dit.control.placement.machines import Machines
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.request import Stage
from elastic_dit.state import PlacementPlan

__all__ = ["Allotment"]


class Allotment:
    """GPUs per stage, one stage each, as last planned; what is over holds nothing, in reserve.

    Parameters
    ----------
    config : PlacementConfig
    models : sequence of str

    Attributes
    ----------
    counts : dict of Stage to int
        Empty before the first plan.
    machines : Machines
    """

    def __init__(self, config: PlacementConfig, models: Sequence[str]) -> None:
        self._config = config
        self._assign = Exclusive(models)
        self._members: frozenset[tuple[int, str, tuple[str, ...]]] = frozenset()
        self._epoch = 0
        self._changed_at: dict[Stage, float] = {}
        self._shares = shares_of(config.ratio, sum(config.ratio.model_dump().values()))
        self.counts: dict[Stage, int] = {}
        self.machines = Machines(config)

    def __repr__(self) -> str:
        return f"<Allotment {counts_text(self.counts)}>"

    def adopt(self, snapshot: ClusterSnapshot, gpus: Sequence[GpuSnapshot]) -> None:
        """Go on from the plan in force, if another scheduler made it: nothing moves for that.

        GPUs for which it wants nothing count as new.
        """
        if snapshot.plan_epoch == self._epoch:
            return
        self._epoch = snapshot.plan_epoch
        held = [present_stages(gpu) for gpu in gpus]
        counts = {stage: sum(stage in stages for stages in held) for stage in Stage}
        if all(len(stages) <= 1 for stages in held) and min(counts.values()):
            self._keep(counts)
            self._members = _members([gpu for gpu in gpus if gpu.wanted])

    def members_changed(self, gpus: Sequence[GpuSnapshot]) -> bool:
        """Whether GPUs came or went, or failed to load something, since the last plan."""
        return self._members != _members(gpus)

    def refitted(self, gpus: int) -> dict[Stage, int]:
        """The proportions last decided on over another number of GPUs, all put to use.

        Not the present counts: rounded anew with every GPU that joins they would drift.
        """
        return split_by_ratio(gpus, self._shares)

    def in_reserve(self, gpus: Sequence[GpuSnapshot]) -> int:
        """GPUs that hold nothing."""
        return len(gpus) - sum(self.counts.values())

    def is_cooling(self, stages: Iterable[Stage], now: float) -> bool:
        """Whether one of some stages was changed too short a time ago to be changed again."""
        last = max(self._changed_at.get(stage, -math.inf) for stage in stages)
        return now - last < self._config.cooldown_s

    def _keep(self, counts: Mapping[Stage, int]) -> None:
        self.counts = dict(counts)
        if self.counts != self.refitted(sum(counts.values())):
            self._shares = {stage: max(1, count) for stage, count in counts.items()}

    def plan(
        self,
        snapshot: ClusterSnapshot,
        gpus: Sequence[GpuSnapshot],
        counts: Mapping[Stage, int],
        reason: str,
        now: float,
    ) -> PlacementPlan | None:
        """Make these the counts; the plan that does it, None where nothing moves.

        A machine whose GPUs would all be in reserve, or could be, is given back.
        """
        for stage in Stage:
            if counts[stage] != self.counts.get(stage):
                self._changed_at[stage] = now
        self._keep(counts)
        staying = self.machines.staying(gpus, sum(counts.values()))
        self._members = _members(staying)
        residency = self._assign.residency(staying, counts)
        machines = self.machines.wish()
        wanted = {gpu.gpu: frozenset(gpu.wanted) for gpu in staying}
        if residency == wanted and not machines.differs:
            return None
        self._epoch = snapshot.plan_epoch + 1
        text = f"E:T:D = {counts_text(counts)} on {len(staying)} GPUs: {reason}"
        return new_plan(snapshot, residency, text, nodes=machines.nodes, retire=machines.retire)


def _members(gpus: Sequence[GpuSnapshot]) -> frozenset[tuple[int, str, tuple[str, ...]]]:
    return frozenset((gpu.gpu, gpu.name, tuple(sorted(gpu.failed))) for gpu in gpus)
