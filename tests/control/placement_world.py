"""A cluster that does at once what placement plans say, and shows whatever signs it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from elastic_dit.control.placement import PlacementPolicy
from elastic_dit.control.snapshot import (
    ArrivalSnapshot,
    ClusterSnapshot,
    GpuSnapshot,
    QueueSnapshot,
    ShapeSnapshot,
)
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import PlacementPlan

E, T, D = Stage
MODEL = "m"
WINDOW_S = 30.0
GB = 10**9


def key(stage: Stage, model: str = MODEL) -> StageKey:
    return StageKey(model, stage)


def shape(
    encoder: float, dit: float, decoder: float, kinds: Sequence[str] = ("A10",), **fields: int
) -> ShapeSnapshot:
    size = {"width": 64, "height": 64, "num_frames": 9, "num_inference_steps": 4, **fields}
    seconds = {kind: {E: encoder, T: dit, D: decoder} for kind in kinds}
    activations = {E: 2 * GB, T: 4 * GB, D: 6 * GB}
    return ShapeSnapshot(model=MODEL, seconds=seconds, activation_bytes=activations, **size)


FOUR_STEPS = shape(5.45, 73.5, 9.7)
ONE_STEP = shape(5.45, 18.4, 9.7, num_inference_steps=1)


@dataclass
class Signs:
    """What one stage shows."""

    utilisation: float = 0.5
    waiting: int = 0
    growth: float = 0.0


@dataclass
class World:
    """`look` asks the policy every 2 s; `plans` are what it said, with their times."""

    policy: PlacementPolicy
    gpus: dict[int, GpuSnapshot] = field(default_factory=dict)
    signs: dict[Stage, Signs] = field(default_factory=dict)
    weights: Mapping[Stage, int | None] = field(
        default_factory=lambda: {E: 10 * GB, T: 14 * GB, D: GB // 10}
    )
    loads: Mapping[Stage, float] = field(default_factory=lambda: {E: 8.0, T: 22.0, D: 0.1})
    now: float = 0.0
    epoch: int = 0
    nodes_wanted: int | None = None
    arrivals: list[ArrivalSnapshot] = field(default_factory=list)
    shapes: list[ShapeSnapshot] = field(default_factory=list)
    plans: list[tuple[float, PlacementPlan]] = field(default_factory=list)

    def join(self, *gpus: int, node: str = "n0", kind: str = "A10", memory: int = 24 * GB) -> None:
        for gpu in gpus:
            self.gpus[gpu] = GpuSnapshot(
                gpu=gpu, name=f"w{gpu}", node=node, kind=kind, memory_bytes=memory
            )

    def lose(self, gpu: int) -> None:
        self.gpus.pop(gpu, None)

    def arrive(self, of: ShapeSnapshot, count: int = 1, every_s: float = 0.0) -> None:
        if of not in self.shapes:
            self.shapes.append(of)
        for number in range(count):
            at = self.now + number * every_s
            self.arrivals.append(ArrivalSnapshot(at, self.shapes.index(of)))

    def look(self, after_s: float = 2.0) -> PlacementPlan | None:
        self.now += after_s
        plan = self.policy.plan(self.snapshot(), self.now)
        if plan is not None:
            assert plan.epoch == self.epoch + 1
            self._carry_out(plan)
            self.plans.append((self.now, plan))
        return plan

    def looks(self, count: int) -> list[PlacementPlan]:
        return [plan for _ in range(count) if (plan := self.look()) is not None]

    def _carry_out(self, plan: PlacementPlan) -> None:
        self.epoch = plan.epoch
        if plan.nodes is not None:
            self.nodes_wanted = plan.nodes
        for gpu in [gpu.gpu for gpu in self.gpus.values() if gpu.node in plan.retire]:
            del self.gpus[gpu]
        for gpu, keys in plan.residency.items():
            held = tuple(sorted(keys))
            self.gpus[gpu] = replace(self.gpus[gpu], resident=held, wanted=held)

    def snapshot(self) -> ClusterSnapshot:
        present = [arrival for arrival in self.arrivals if arrival.at <= self.now]
        return ClusterSnapshot(
            at=self.now,
            plan_epoch=self.epoch,
            plan_reason="",
            gpus=tuple(self.gpus[gpu] for gpu in sorted(self.gpus)),
            queues=tuple(self._queue(stage) for stage in Stage),
            window_s=WINDOW_S,
            arrivals=tuple(present),
            accepted=len(present),
            shapes=tuple(self.shapes),
        )

    def _queue(self, stage: Stage) -> QueueSnapshot:
        signs = self.signs.get(stage, Signs())
        return QueueSnapshot(
            key=key(stage),
            waiting=signs.waiting,
            running=0,
            oldest_wait_s=0.0,
            serving=self.counts()[stage],
            utilisation=signs.utilisation,
            delay_growth=signs.growth,
            load_s=self.loads[stage],
            weights_bytes=self.weights[stage],
        )

    def counts(self) -> Counter[Stage]:
        return Counter(each.stage for gpu in self.gpus.values() for each in gpu.resident)

    @property
    def ratio(self) -> str:
        return ":".join(str(self.counts()[stage]) for stage in Stage)
