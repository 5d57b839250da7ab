"""What must hold of a controller's state between two events; used by tests."""

from __future__ import annotations

from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.groups import GroupState, GroupTable
from elastic_dit.control.requests import RequestRecord, RequestTable

__all__ = ["check_invariants"]


def check_invariants(table: RequestTable, pool: GpuPool, groups: GroupTable) -> None:
    """Check everything, at a cost of O(requests + GPUs).

    Raises
    ------
    AssertionError
        Naming what is wrong.
    """
    _check_groups(table, pool, groups)
    for record in table.live.values():
        _check_record(record, table, pool)
    for gpu in pool:
        _check_gpu(gpu, table, pool)
    waiting = sum(len(queue) for queue in table.queues.values())
    waiting += sum(record.held_until is not None for record in table.live.values())
    assert waiting == table.waiting, (waiting, table.waiting)
    for record in table.finished.values():
        assert record.phase.is_terminal, record
        assert record.group is None, record
        assert not list(record.held()), record


def _check_groups(table: RequestTable, pool: GpuPool, groups: GroupTable) -> None:
    taken: dict[int, object] = {}
    for group in groups:
        assert group.held, group
        assert group.gpus or group.state is GroupState.ABORTING, group
        assert set(group.gpus) <= group.held, group
        assert list(group.gpus) == sorted(group.gpus), group
        for gpu in group.held:
            assert gpu not in taken, (group, taken[gpu])
            taken[gpu] = group
            assert gpu in pool, (gpu, group)
            assert pool[gpu].group is group, (gpu, group)
        record = table.live.get(group.request_id)
        works = record is not None and record.group is group
        assert works or group.state is GroupState.ABORTING, group
    busy = {gpu.gpu for gpu in pool if gpu.group is not None}
    assert busy == taken.keys(), (busy, taken)


def _check_record(record: RequestRecord, table: RequestTable, pool: GpuPool) -> None:
    assert not record.phase.is_terminal, record
    assert record.phase.is_waiting == (record.group is None), record
    queue = table.queues.get(record.key)
    queued = queue is not None and record in queue
    assert queued == (record.phase.is_waiting and record.held_until is None), record
    if record.phase.is_waiting:
        assert record.runnable_stage() is record.stage, record
    if record.group is not None:
        assert record.group.key == record.key, record
        assert record.prepared is None, record
        assert record.epoch == record.group.newest_epoch, record
    for artifact in record.held():
        assert artifact.gpu in pool, (record, artifact)
        assert record in table.held_on(artifact.gpu), (record, artifact)


def _check_gpu(gpu: Gpu, table: RequestTable, pool: GpuPool) -> None:
    for key in gpu.resident:
        free = gpu.is_idle and gpu.serves(key)
        assert (gpu.gpu in pool.free(key)) == free, gpu
        assert (gpu.gpu in pool.serving(key)) == gpu.serves(key), gpu
    assert gpu.draining <= gpu.resident, gpu
    assert gpu.dropping <= gpu.resident, gpu
    assert not gpu.loading & gpu.resident, gpu
    if gpu.group is not None:
        assert gpu.group.key in gpu.resident - gpu.dropping, gpu
    for request_id in gpu.prepared:
        assert table.live[request_id].prepared == gpu.gpu, (gpu, request_id)
