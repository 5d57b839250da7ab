"""Entries and changes for tests."""

from __future__ import annotations

from typing import Any

from elastic_dit.journal.entry import Ended, Entry
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import Failure, Phase, StageRecord

RECORD = StageRecord(stage=Stage.DIT, gpus=(0, 1), started_at=3.0, seconds=1.5, attempt=2)
FAILURE = Failure(error_type="ValueError", message="no such colour", stage=Stage.DECODER)


def make_request(request_id: str, **fields: Any) -> GenerationRequest:
    options: dict[str, Any] = {
        "model": "m",
        "prompt": "赤い丸 – a red circle",
        "width": 64,
        "height": 48,
        "num_frames": 5,
        "fps": 8,
        "num_inference_steps": 4,
        "guidance_scale": 4.0,
        "seed": 2**63 - 1,
    }
    return GenerationRequest.parse(**{**options, "request_id": request_id, **fields})


def make_entry(request_id: str, at: float = 10.0, owner: str = "me", **fields: Any) -> Entry:
    request = make_request(request_id, **fields)
    return Entry(request=request, accepted_at=at, dops=(1, 2), owner=owner)


def completed(request_id: str, at: float = 20.0) -> Ended:
    return Ended(
        request_id=request_id,
        phase=Phase.COMPLETED,
        finished_at=at,
        attempts=2,
        records=(RECORD,),
        has_result=True,
    )


def failed(request_id: str, at: float = 20.0) -> Ended:
    return Ended(
        request_id=request_id,
        phase=Phase.FAILED,
        finished_at=at,
        attempts=3,
        failure=FAILURE,
    )
