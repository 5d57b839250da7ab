"""DisagFusion's reactive rules: a GPU more for a stage that falls behind, one less for an idle one.

Algorithm 1, lines 11 to 17, every delta = 2 s, for each stage s with utilisation u, queue length q
and mean queueing delay d::

    if   u > U_high (80 %)  and  q > Q_high (5)  and  d grows:   scale out
    elif u < U_low (20 %)   and  q = 0:                          scale in

The paper leaves open where a GPU comes from when none is idle, and what keeps two thresholds from
chasing each other. Here:

* **Where from.** One in reserve; else one of the least busy stage that stays below U_high without
  it (a queue before a stage that is not busy is held back by the next stage, not short of GPUs);
  else another machine, where `PlacementConfig.max_machines` allows one.
* **Hysteresis.** The signs must agree at `confirm_looks` looks in a row, in which the queue must
  not have shrunk.
* **Cool-down.** A stage that was changed, up or down, is left alone for `cooldown_s`.
* **Warm-up guard.** Nothing is decided while a GPU still drains, drops or loads, nor on a window
  that began before all were done with it.
* **Drain before drop.** The controller lets a GPU end its present work before it drops a stage;
  the GPU chosen is one that is free soonest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.allotment import Allotment
from elastic_dit.control.placement.assign import usable
from elastic_dit.control.placement.policy import register_placement
from elastic_dit.control.placement.signs import StageSigns, read_signs
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.request import Stage
from elastic_dit.state import PlacementPlan

__all__ = ["Allows", "Reactive"]

Allows = Callable[[Mapping[Stage, int]], bool]
"""Whether counts may be considered."""


class Reactive:
    """The thresholds alone, beginning with the configured ratio.

    Parameters
    ----------
    config : PlacementConfig
    models : sequence of str
    """

    def __init__(self, config: PlacementConfig, models: Sequence[str]) -> None:
        self._config = config
        self._shown: dict[tuple[Stage, str], tuple[int, int]] = {}
        self._settled_at: float | None = None
        self.allotment = Allotment(config, models)

    def __repr__(self) -> str:
        return f"Reactive({self.allotment!r})"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        """See `PlacementPolicy`."""
        gpus = usable(snapshot)
        self.allotment.adopt(snapshot, gpus)
        if self.allotment.members_changed(gpus):
            self._shown.clear()
            counts = self.allotment.refitted(len(gpus))
            return self.allotment.plan(snapshot, gpus, counts, "GPUs came or went", now)
        return self.react(snapshot, gpus, now)

    def react(
        self,
        snapshot: ClusterSnapshot,
        gpus: Sequence[GpuSnapshot],
        now: float,
        allows: Allows = lambda _: True,
    ) -> PlacementPlan | None:
        """The rules, for GPUs that are those of the last plan.

        Parameters
        ----------
        snapshot, gpus, now
            As ever.
        allows : callable
            Whether other counts are to be considered at all.
        """
        if not self._is_warm(snapshot, gpus, now):
            self._shown.clear()
            return None
        signs = read_signs(snapshot)
        for counts, why in self._changes(signs, gpus, now):
            if allows(counts):
                self._shown.clear()
                return self.allotment.plan(snapshot, gpus, counts, why, now)
        return None

    def _is_warm(self, snapshot: ClusterSnapshot, gpus: Sequence[GpuSnapshot], now: float) -> bool:
        """Whether all GPUs have held what they shall for the whole window."""
        if len(gpus) < len(Stage) or not all(gpu.is_settled for gpu in gpus):
            self._settled_at = None
            return False
        if self._settled_at is None:
            self._settled_at = now
        return now - self._settled_at >= snapshot.window_s

    def _changes(
        self, signs: Mapping[Stage, StageSigns], gpus: Sequence[GpuSnapshot], now: float
    ) -> Iterator[tuple[dict[Stage, int], str]]:
        """Changes that the signs call for, the most urgent first."""
        counts = self.allotment.counts
        overloaded, idle = self._confirmed(signs, "out"), self._confirmed(signs, "in")
        # The longest queue first, then the busiest.
        for stage in sorted(overloaded, key=lambda s: (-signs[s].waiting, -signs[s].utilisation)):
            if not self.allotment.is_cooling([stage], now):
                yield from self._scale_out(stage, signs, gpus, now)
        for stage in idle:
            if counts[stage] > 1 and not self.allotment.is_cooling([stage], now):
                yield _moved(counts, {stage: -1}), f"{stage} {signs[stage]}"

    def _confirmed(self, signs: Mapping[Stage, StageSigns], which: str) -> list[Stage]:
        """Stages that have shown a sign at enough looks in a row, their queues not shrinking."""
        confirmed = []
        for stage in Stage:
            of = signs.get(stage)
            shown = of is not None and (
                of.is_overloaded(self._config) if which == "out" else of.is_idle(self._config)
            )
            if of is None or not shown:
                self._shown.pop((stage, which), None)
                continue
            looks, waiting = self._shown.get((stage, which), (0, of.waiting))
            self._shown[stage, which] = (
                (1, of.waiting) if of.waiting < waiting else (looks + 1, waiting)
            )
            if self._shown[stage, which][0] >= self._config.confirm_looks:
                confirmed.append(stage)
        return confirmed

    def _scale_out(
        self,
        stage: Stage,
        signs: Mapping[Stage, StageSigns],
        gpus: Sequence[GpuSnapshot],
        now: float,
    ) -> Iterator[tuple[dict[Stage, int], str]]:
        """Ways to a GPU more for a stage: from the reserve, another stage, another machine."""
        counts, why = self.allotment.counts, f"{stage} {signs[stage]}"
        if self.allotment.in_reserve(gpus) > 0:
            yield _moved(counts, {stage: 1}), why
        for donor in self._donors(stage, signs, now):
            yield _moved(counts, {stage: 1, donor: -1}), f"{why}; {donor} {signs[donor]}"
        if self.allotment.machines.ask(gpus):
            yield dict(counts), f"{why}; no GPU to spare"

    def _donors(self, taker: Stage, signs: Mapping[Stage, StageSigns], now: float) -> list[Stage]:
        """Stages that can do with a GPU less, the least busy first."""
        counts = self.allotment.counts
        busy = {
            stage: of.utilisation * counts[stage] / (counts[stage] - 1)
            for stage, of in signs.items()
            if stage is not taker
            and counts[stage] > 1
            and not self.allotment.is_cooling([stage], now)
        }
        able = [stage for stage, part in busy.items() if part < self._config.scale_out_utilisation]
        return sorted(able, key=lambda stage: busy[stage])


def _moved(counts: Mapping[Stage, int], by: Mapping[Stage, int]) -> dict[Stage, int]:
    return {stage: count + by.get(stage, 0) for stage, count in counts.items()}


register_placement("reactive", Reactive)
