"""What can be read off the controller at any moment."""

from __future__ import annotations

from collections import Counter

from elastic_dit.control.controller import Controller
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import Stage, StageKey

__all__ = ["read_gauges"]


def read_gauges(controller: Controller, now: float) -> Readings:
    """Queues, groups and GPUs as they are.

    Parameters
    ----------
    controller : Controller
    now : float
        Seconds on its clock.

    Returns
    -------
    Readings
        In O(GPUs x stages + queues + groups).
    """
    readings = Readings()
    snapshot = controller.snapshot(now)
    readings.put(catalogue.PLAN_EPOCH, snapshot.plan_epoch)
    for queue in snapshot.queues:
        labels = queue.key.model, str(queue.key.stage)
        readings.put(catalogue.REQUESTS_RUNNING, queue.running, *labels)
        readings.put(catalogue.REQUESTS_WAITING, queue.waiting, *labels)
        readings.put(catalogue.OLDEST_WAIT_S, queue.oldest_wait_s, *labels)
    dops = Counter((group.key.model, group.dop) for group in controller.view.running(Stage.DIT))
    for (model, dop), requests in sorted(dops.items()):
        readings.put(catalogue.DOP, requests, model, str(dop))
    for gpu in snapshot.gpus:
        _read_gpu(readings, gpu)
    _read_stages(readings, controller, snapshot)
    return readings


def _read_gpu(readings: Readings, gpu: GpuSnapshot) -> None:
    replica = str(gpu.gpu)
    readings.put(catalogue.GPU_BUSY, gpu.request_id is not None, replica, gpu.node)
    readings.put(catalogue.GPU_BUSY_S, gpu.busy_s, replica, gpu.node)
    readings.put(catalogue.GPU_MEMORY, gpu.memory_bytes, replica, gpu.node)


def _read_stages(readings: Readings, controller: Controller, snapshot: ClusterSnapshot) -> None:
    holders: Counter[StageKey] = Counter()
    busy: Counter[StageKey] = Counter()
    for gpu in snapshot.gpus:
        holders.update(gpu.resident)
        group = controller.pool[gpu.gpu].group
        if group is not None:
            busy[group.key] += 1
    for key, count in sorted(holders.items()):
        readings.put(catalogue.STAGE_GPUS, count, key.model, str(key.stage))
        readings.put(catalogue.UTILIZATION, min(1.0, busy[key] / count), key.model, str(key.stage))
