"""Takes snapshots of a controller's state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.groups import Group, GroupState, GroupTable
from elastic_dit.control.meter import Meter, slope
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.residency import Residency
from elastic_dit.control.snapshot import (
    ArrivalSnapshot,
    ClusterSnapshot,
    GpuSnapshot,
    QueueSnapshot,
    ShapeSnapshot,
)
from elastic_dit.control.view import StageTimes
from elastic_dit.cost import MemoryModel
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import Phase

__all__ = ["Observer"]

_Shape = tuple[str, int, int, int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Copies what placement policies, `status` and the dashboard need.

    A look costs O(GPUs + stages + arrivals kept).

    Attributes
    ----------
    table, pool, groups, residency, meter
        The controller's parts.
    times : StageTimes
        What stages are expected to take.
    memory : MemoryModel or None
        What they take of a GPU's memory, where that is known beforehand.
    """

    table: RequestTable
    pool: GpuPool
    groups: GroupTable
    residency: Residency
    meter: Meter
    times: StageTimes
    memory: MemoryModel | None = None

    def look(self, now: float) -> ClusterSnapshot:
        """The cluster at this moment."""
        gpus = tuple(self._gpu(gpu, now) for gpu in sorted(self.pool, key=lambda gpu: gpu.gpu))
        running = Counter(group.key for stage in Stage for group in self.groups.working(stage))
        keys = self.table.queues.keys() | running.keys()
        keys |= {key for gpu in gpus for key in (*gpu.resident, *gpu.wanted)}
        utilisation = {gpu.gpu: gpu.utilisation for gpu in gpus}
        shapes, arrivals = self._arrivals()
        return ClusterSnapshot(
            at=now,
            plan_epoch=self.residency.plan.epoch,
            plan_reason=self.residency.plan.reason,
            gpus=gpus,
            queues=tuple(self._queue(key, running[key], utilisation, now) for key in sorted(keys)),
            live=len(self.table.live),
            waiting=self.table.waiting,
            completed=self.table.ended[Phase.COMPLETED],
            failed=self.table.ended[Phase.FAILED],
            cancelled=self.table.ended[Phase.CANCELLED],
            accepted=self.meter.accepted_total,
            window_s=self.meter.window_s,
            arrivals=arrivals,
            shapes=shapes,
        )

    def _gpu(self, gpu: Gpu, now: float) -> GpuSnapshot:
        group = gpu.group
        return GpuSnapshot(
            gpu=gpu.gpu,
            name=gpu.name,
            node=gpu.node,
            kind=gpu.kind,
            memory_bytes=gpu.memory_bytes,
            resident=tuple(sorted(gpu.resident)),
            loading=tuple(sorted(gpu.loading)),
            draining=tuple(sorted(gpu.draining | gpu.dropping)),
            wanted=tuple(sorted(self.residency.wanted(gpu))),
            failed={f"{key.model}/{key.stage}": message for key, message in gpu.failed.items()},
            retiring=gpu.retiring,
            request_id=group.request_id if group else None,
            stage=group.stage if group else None,
            aborting=group is not None and group.state is GroupState.ABORTING,
            busy_s=gpu.busy_total_s(now),
            alive_s=now - gpu.joined_at,
            utilisation=gpu.utilisation(now, self.meter.window_s),
            remaining_s=self._remaining_s(group, gpu.kind, now) if group else 0.0,
        )

    def _remaining_s(self, group: Group, kind: str, now: float) -> float | None:
        record = self.table.live.get(group.request_id)
        if record is None:
            return None
        unit_s = self.times.seconds(record.request, group.stage, group.dop, kind)
        if group.stage is Stage.DIT and group.step_s is not None:
            unit_s = group.step_s
        if unit_s is None:
            return None
        units = group.total_steps - group.step if group.stage is Stage.DIT else 1
        return max(0.0, unit_s * units - (now - group.step_at))

    def _queue(
        self, key: StageKey, running: int, utilisation: dict[int, float], now: float
    ) -> QueueSnapshot:
        queue = self.table.queues.get(key)
        head = queue.head if queue is not None else None
        oldest_s = now - head.waiting_since if head is not None else 0.0
        waits = [*self.meter.waits(key, now)]
        if head is not None:
            waits.append((now, oldest_s))
        serving = self.pool.serving(key)
        weights = self.memory.weights_bytes(key) if self.memory else None
        return QueueSnapshot(
            key=key,
            waiting=len(queue) if queue is not None else 0,
            running=running,
            oldest_wait_s=oldest_s,
            serving=len(serving),
            utilisation=sum(utilisation[gpu] for gpu in serving) / max(1, len(serving)),
            delay_s=sum(wait for _, wait in waits) / max(1, len(waits)),
            delay_growth=slope(waits),
            load_s=self.meter.load_s(key),
            weights_bytes=self.meter.weights_bytes(key) if weights is None else weights,
        )

    def _arrivals(self) -> tuple[tuple[ShapeSnapshot, ...], tuple[ArrivalSnapshot, ...]]:
        kinds = sorted({gpu.kind for gpu in self.pool})
        index: dict[_Shape, int] = {}
        shapes: list[ShapeSnapshot] = []
        arrivals = []
        for at, request in self.meter.arrivals:
            shape = _shape(request)
            if shape not in index:
                index[shape] = len(shapes)
                shapes.append(self._shape(request, kinds))
            arrivals.append(ArrivalSnapshot(at, index[shape]))
        return tuple(shapes), tuple(arrivals)

    def _shape(self, request: GenerationRequest, kinds: list[str]) -> ShapeSnapshot:
        activations = {
            stage: self.memory.activation_bytes(request, stage) if self.memory else None
            for stage in Stage
        }
        return ShapeSnapshot(
            model=request.model,
            width=request.width,
            height=request.height,
            num_frames=request.num_frames,
            num_inference_steps=request.num_inference_steps,
            seconds={kind: self._seconds(request, kind) for kind in kinds},
            activation_bytes={s: nbytes for s, nbytes in activations.items() if nbytes is not None},
        )

    def _seconds(self, request: GenerationRequest, kind: str) -> dict[Stage, float]:
        units = {stage: self.times.seconds(request, stage, 1, kind) for stage in Stage}
        steps = dict.fromkeys(Stage, 1) | {Stage.DIT: request.num_inference_steps}
        return {stage: unit * steps[stage] for stage, unit in units.items() if unit is not None}


def _shape(request: GenerationRequest) -> _Shape:
    guided = request.guidance_scale > 1.0
    size = (request.width, request.height, request.num_frames)
    return (request.model, *size, request.num_inference_steps, guided)
