"""DisagFusion's hybrid instance scheduling (Algorithm 1): prediction first, then the rules.

Every delta = 2 s:

1. Take note of utilisation, queue length, delay and arrivals (lines 3 to 5; the controller does).
2. If the workload changed, the predictor gives the counts that suit the requests since the change,
   and the rules are skipped until the next look (lines 6 to 10).
3. Otherwise the reactive rules (lines 11 to 17; `elastic_dit.control.placement.reactive`).

With stage times T and GPUs g, throughput is ``min g / T`` over the stages, the best counts balance
the service rates, and ``sum g`` is at most the GPUs there are. Added to the paper: GPUs that come
or go are a change of workload too, and a move must gain more requests within `earn_back_s` than
its loads cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.assign import usable
from elastic_dit.control.placement.demand import arrivals_since, gpus_by_kind, workload_of
from elastic_dit.control.placement.packed import Packed
from elastic_dit.control.placement.policy import PlacementPolicy, register_placement
from elastic_dit.control.placement.predictors import make_predictor
from elastic_dit.control.placement.reactive import Allows, Reactive
from elastic_dit.control.placement.regime import Regime
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.predict.balanced import bottleneck_hz
from elastic_dit.predict.shadow import Shadowed, ShadowNote
from elastic_dit.predict.workload import RatioPredictor, Workload
from elastic_dit.request import Stage
from elastic_dit.state import PlacementPlan

__all__ = ["Hybrid"]


class Hybrid:
    """Predicted counts when the workload changes, the reactive rules in between.

    Parameters
    ----------
    config : PlacementConfig
    models : sequence of str
    predictor : RatioPredictor, optional
        By default the configured one.
    """

    def __init__(
        self,
        config: PlacementConfig,
        models: Sequence[str],
        predictor: RatioPredictor | None = None,
    ) -> None:
        self._config = config
        self._predictor = predictor or make_predictor(config.predictor)
        self._note: ShadowNote | None = None
        if config.shadow is not None:
            shadow = make_predictor(config.shadow)
            self._predictor = Shadowed(self._predictor, shadow, self._take_note)
        self._reactive = Reactive(config, models)
        self._regime = Regime()
        self._pending = False

    def __repr__(self) -> str:
        return f"Hybrid({self._predictor!r}, {self._reactive.allotment!r})"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        """See `PlacementPolicy`."""
        gpus = usable(snapshot)
        allotment = self._reactive.allotment
        allotment.adopt(snapshot, gpus)
        members_changed = allotment.members_changed(gpus)
        self._pending |= self._regime.changed(snapshot)
        workload = workload_of(snapshot, arrivals_since(snapshot, self._regime.since))
        if workload is None or len(gpus) < len(Stage):
            return self._reactive.plan(snapshot, now)
        if members_changed:
            counts = self._predicted(workload, snapshot)
            reason = self._told("GPUs came or went")
            return allotment.plan(snapshot, gpus, counts, reason, now)
        if not self._pending:
            return self._reactive.react(snapshot, gpus, now, self._is_no_loss(workload, gpus))
        if allotment.is_cooling(Stage, now):
            return None
        self._pending = False
        return self._shifted(snapshot, gpus, workload, now)

    def _take_note(self, note: ShadowNote) -> None:
        self._note = note

    def _told(self, reason: str) -> str:
        """A reason, with what the shadow would have done."""
        return reason if self._note is None else f"{reason}; {self._note}"

    def _shifted(
        self,
        snapshot: ClusterSnapshot,
        gpus: Sequence[GpuSnapshot],
        workload: Workload,
        now: float,
    ) -> PlacementPlan | None:
        allotment = self._reactive.allotment
        counts = self._predicted(workload, snapshot)
        old_hz, new_hz = (bottleneck_hz(workload, each) for each in (allotment.counts, counts))
        gained = (new_hz - old_hz) * self._config.earn_back_s
        if gained <= self._lost(snapshot, allotment.counts, counts, old_hz):
            return None
        reason = f"workload changed, {60 * new_hz:.2f} instead of {60 * old_hz:.2f} per minute"
        return allotment.plan(snapshot, gpus, counts, self._told(reason), now)

    def _is_no_loss(self, workload: Workload, gpus: Sequence[GpuSnapshot]) -> Allows:
        """What the rules may do: nothing that the stage times say would serve less.

        Signs lag behind: the queue that a burst or the last workload left is not one to move
        GPUs for. A stage may give a GPU up to the reserve while what is left serves what is asked,
        and where its machine can be given back; it is of no use there otherwise.
        """
        allotment = self._reactive.allotment
        present_hz = bottleneck_hz(workload, allotment.counts)
        asked_hz = workload.rate_hz / self._config.scale_out_utilisation
        size = sum(allotment.counts.values())
        may_shrink = allotment.machines.may_shrink(gpus)

        def allows(counts: Mapping[Stage, int]) -> bool:
            served_hz = bottleneck_hz(workload, counts)
            if sum(counts.values()) < size:
                return may_shrink and served_hz >= asked_hz
            return served_hz >= present_hz

        return allows

    def _predicted(self, workload: Workload, snapshot: ClusterSnapshot) -> dict[Stage, int]:
        counts = self._predictor.predict(workload, gpus_by_kind(snapshot))
        # A stage that these requests do not need may be needed by the next one.
        kept = {stage: max(1, counts.get(stage, 0)) for stage in Stage}
        richest = max(Stage, key=lambda stage: kept[stage])
        kept[richest] -= sum(kept.values()) - sum(counts.values())
        return kept

    @staticmethod
    def _lost(
        snapshot: ClusterSnapshot,
        old: Mapping[Stage, int],
        new: Mapping[Stage, int],
        old_hz: float,
    ) -> float:
        """Requests that GPUs would have served, all alike, while they load another stage."""
        loads = {queue.key: queue.load_s or 0.0 for queue in snapshot.queues}
        seconds = sum(
            seconds * max(0, new[key.stage] - old[key.stage]) for key, seconds in loads.items()
        )
        return old_hz * seconds / max(1, sum(old.values()))


def _make(config: PlacementConfig, models: Sequence[str]) -> PlacementPolicy:
    return Hybrid(config, models) if config.exclusive else Packed(config, models)


register_placement("hybrid", _make)
