"""How long each stage takes on one engine: the measurement behind cost models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_dit.engine.protocol import Boundary, Engine, Payload
from elastic_dit.request import GenerationRequest, Stage, StageKey

__all__ = ["profile_stages"]


class _Stopwatch:
    """A `StageContext` that notes when steps end."""

    def __init__(self) -> None:
        self.ends = [time.perf_counter()]

    def boundary(self, step: int, total_steps: int) -> Boundary:  # noqa: ARG002
        self.ends.append(time.perf_counter())
        return Boundary.CONTINUE

    def aborted(self) -> bool:
        return False

    @property
    def steps(self) -> list[float]:
        return [after - before for before, after in zip(self.ends[:-1], self.ends[1:], strict=True)]


def profile_stages(engine: Engine, shapes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Time every resident stage for the given shapes.

    Parameters
    ----------
    engine : Engine
        Called in its own thread. Stages whose output a resident one needs are loaded for the
        time of the measurement.
    shapes : sequence of mapping
        Fields of `GenerationRequest`; a missing one takes the model's default, a missing model
        is the engine's first.

    Returns
    -------
    list of dict
        ``model``, ``stage``, ``width``, ``height``, ``num_frames``, ``num_inference_steps``,
        ``seconds`` on the device, and for the DiT stage ``step_seconds`` of each step.

    Raises
    ------
    InvalidRequest
        Where the model cannot make such a shape.

    Examples
    --------
    >>> from elastic_dit.engine.fake import FakeEngine
    >>> engine = FakeEngine()
    >>> _ = engine.load(StageKey("fake", Stage.DIT))
    >>> rows = profile_stages(engine, [{"num_inference_steps": 3}])
    >>> [(row["stage"], len(row["step_seconds"])) for row in rows]
    [('dit', 3)]
    """
    requests = [_request(engine, shape) for shape in shapes]
    resident = engine.info().resident
    borrowed: list[StageKey] = []
    try:
        rows = []
        for request in requests:
            rows += _profile(engine, request, resident, borrowed)
        return rows
    finally:
        for key in borrowed:
            engine.drop(key)


def _request(engine: Engine, shape: Mapping[str, Any]) -> GenerationRequest:
    card = engine.card(shape.get("model") or engine.models()[0])
    filled = {"prompt": "a picture to measure by", "seed": 0, "request_id": "profile", **shape}
    return card.sample(filled)


def _profile(
    engine: Engine,
    request: GenerationRequest,
    resident: Sequence[StageKey],
    borrowed: list[StageKey],
) -> list[dict[str, Any]]:
    rows = []
    payload: Payload | None = None
    wanted = [stage for stage in Stage if StageKey(request.model, stage) in resident]
    order = tuple(Stage)
    for stage in order[: order.index(wanted[-1]) + 1] if wanted else ():
        key = StageKey(request.model, stage)
        if key not in resident and key not in borrowed:
            engine.load(key)
            borrowed.append(key)
        watch = _Stopwatch()
        output = engine.run(stage, request, payload, watch)
        payload = output.payload
        if stage in wanted:
            rows.append(_row(request, stage, output.seconds, watch))
    return rows


def _row(
    request: GenerationRequest, stage: Stage, seconds: float, watch: _Stopwatch
) -> dict[str, Any]:
    shape = ("width", "height", "num_frames", "num_inference_steps")
    row = {"model": request.model, "stage": str(stage), "seconds": seconds}
    row.update((field, getattr(request, field)) for field in shape)
    if stage is Stage.DIT:
        row["step_seconds"] = watch.steps
    return row
