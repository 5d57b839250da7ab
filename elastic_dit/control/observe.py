"""Takes snapshots of a controller's state."""

from __future__ import annotations

from collections import Counter

from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.groups import GroupState, GroupTable
from elastic_dit.control.requests import RequestTable, WaitQueue
from elastic_dit.control.residency import Residency
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot, QueueSnapshot
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import Phase

__all__ = ["take_snapshot"]


def take_snapshot(
    table: RequestTable, pool: GpuPool, groups: GroupTable, residency: Residency, now: float
) -> ClusterSnapshot:
    """Copy what placement policies, `status` and the dashboard need; O(GPUs + queues)."""
    running = Counter(group.key for stage in Stage for group in groups.working(stage))
    queues = table.queues
    return ClusterSnapshot(
        at=now,
        plan_epoch=residency.plan.epoch,
        plan_reason=residency.plan.reason,
        gpus=tuple(
            _gpu_snapshot(gpu, residency, now) for gpu in sorted(pool, key=lambda gpu: gpu.gpu)
        ),
        queues=tuple(
            _queue_snapshot(key, queues.get(key), running[key], now)
            for key in sorted(queues.keys() | running.keys())
        ),
        live=len(table.live),
        waiting=table.waiting,
        completed=table.ended[Phase.COMPLETED],
        failed=table.ended[Phase.FAILED],
        cancelled=table.ended[Phase.CANCELLED],
    )


def _gpu_snapshot(gpu: Gpu, residency: Residency, now: float) -> GpuSnapshot:
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
        wanted=tuple(sorted(residency.wanted(gpu))),
        failed={f"{key.model}/{key.stage}": message for key, message in gpu.failed.items()},
        retiring=gpu.retiring,
        request_id=group.request_id if group else None,
        stage=group.stage if group else None,
        aborting=group is not None and group.state is GroupState.ABORTING,
        busy_s=gpu.busy_total_s(now),
        alive_s=now - gpu.joined_at,
    )


def _queue_snapshot(
    key: StageKey, queue: WaitQueue | None, running: int, now: float
) -> QueueSnapshot:
    head = queue.head if queue is not None else None
    return QueueSnapshot(
        key=key,
        waiting=len(queue) if queue is not None else 0,
        running=running,
        oldest_wait_s=now - head.waiting_since if head is not None else 0.0,
    )
