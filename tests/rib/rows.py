"""Latencies for tests."""

from __future__ import annotations

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.rib import Latency, LatencyKey, Source

KIND = "virtual"


def key(
    width: int = 64, *, stage: Stage = Stage.DIT, dop: int = 1, frames: int = 9,
    guided: bool = True, kind: str = KIND, model: str = "m",
) -> LatencyKey:  # fmt: skip
    return LatencyKey(model, stage, width, 64, frames, guided, dop, kind)


def latency(seconds: float, width: int = 64, *, repeats: int = 3, **of: object) -> Latency:
    return Latency(
        key=key(width, **of),  # type: ignore[arg-type]
        seconds=seconds,
        repeats=repeats,
        spread_s=seconds / 10,
        source=Source.PROFILED,
    )


def request(width: int = 64, **fields: object) -> GenerationRequest:
    options: dict[str, object] = {
        "request_id": "r", "model": "m", "prompt": "p", "width": width, "height": 64,
        "num_frames": 9, "fps": 8, "num_inference_steps": 4, "guidance_scale": 4.0, "seed": 0,
    }  # fmt: skip
    return GenerationRequest.parse(**{**options, **fields})
