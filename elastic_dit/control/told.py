"""What everybody who looks on is told of one request: the status command and the live page."""

from __future__ import annotations

from typing import Any

from elastic_dit.control.controller import Controller
from elastic_dit.control.record import RequestRecord

__all__ = ["told_of"]


def told_of(controller: Controller, record: RequestRecord, now: float) -> dict[str, Any]:
    """One request as plain data.

    Returns
    -------
    dict
        ``request_id``, ``model``, ``width``, ``height``, ``num_frames``, ``phase``, ``step``,
        ``total_steps``, ``dop``, ``gpus``, ``queue_position``, ``eta_s``, ``attempt``.
    """
    request = record.request
    progress = controller.progress(record.request_id, now)
    assert progress is not None, record
    return {
        "request_id": record.request_id,
        "model": request.model,
        "width": request.width,
        "height": request.height,
        "num_frames": request.num_frames,
        "phase": str(record.phase),
        "step": progress.step,
        "total_steps": progress.total_steps,
        "dop": progress.dop,
        "gpus": list(record.group.gpus) if record.group else [],
        "queue_position": progress.queue_position,
        "eta_s": progress.eta_s,
        "attempt": record.attempt,
    }
