"""Predicted work: GPU-seconds of one request, and of all that are in the cluster."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from elastic_dit.control.record import RequestRecord
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.view import StageTimes
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import Phase

__all__ = ["Backlog"]

_REFRESH_S = 1.0
"""Age at which the sum is made anew: requests have moved on, and more is known of their times."""
_RATE_WINDOW = 32
"""Latest ends from which the drain rate is taken."""

_Shape = tuple[str, int, int, int, bool]


class _Work(NamedTuple):
    """GPU-seconds of one shape: of its encode, one denoising step, its decode."""

    encode: float
    step: float
    decode: float

    def of(self, steps: int, stage: Stage) -> float:
        """From the beginning of a stage on, with `steps` to do."""
        if stage is Stage.DECODER:
            return self.decode
        rest = self.step * steps + self.decode
        return rest if stage is Stage.DIT else self.encode + rest


class Backlog:
    """GPU-seconds that live requests are predicted to take yet, and how fast they drain.

    Predictions are for one GPU per request: more of them take less time, not less work. A shape
    of which nothing is known counts as its share of pixels and steps of those that are known.

    Parameters
    ----------
    table : RequestTable
    times : StageTimes
    """

    def __init__(self, table: RequestTable, times: StageTimes) -> None:
        self._table = table
        self._times = times
        self._left: dict[str, float] = {}
        self._total_s = 0.0
        self._summed_at: float | None = None
        self._per_pixel_step = 0.0
        self._ends: deque[tuple[float, float]] = deque(maxlen=_RATE_WINDOW)

    def __repr__(self) -> str:
        return f"<Backlog of {self._total_s:.1f} GPU-seconds>"

    def total_s(self, now: float) -> float:
        """GPU-seconds of all live requests, a second old at most."""
        if self._summed_at is None or now - self._summed_at >= _REFRESH_S:
            self._sum(now)
        return max(0.0, self._total_s)

    def work_s(self, request: GenerationRequest) -> float:
        """GPU-seconds of a whole request; 0 while nothing is known of any."""
        work = self._work(request)
        return self._guess(request) if work is None else _whole(work, request)

    def fastest_s(self, request: GenerationRequest, dops: tuple[int, ...]) -> float | None:
        """Seconds from start to result where nothing else runs; None where that is not known.

        Parameters
        ----------
        request : GenerationRequest
        dops : tuple of int
            Degrees of parallelism it may run at.
        """
        work = self._work(request)
        if work is None:
            return None
        steps = (self._times.seconds(request, Stage.DIT, dop) for dop in dops)
        step = min((s for s in steps if s is not None), default=work.step)
        return work.encode + min(step, work.step) * request.num_inference_steps + work.decode

    def add(self, record: RequestRecord) -> None:
        """A request came."""
        left = self._left_of(record, self._work(record.request))
        self._total_s += left - self._left.get(record.request_id, 0.0)
        self._left[record.request_id] = left

    def note_end(self, record: RequestRecord, now: float) -> None:
        """A request left; what is cancelled or failed tells nothing of how fast work is done."""
        self._total_s -= self._left.pop(record.request_id, 0.0)
        if record.phase is Phase.COMPLETED:
            self._ends.append((now, self.work_s(record.request)))

    def drain_per_s(self, now: float, gpus: int) -> float:
        """GPU-seconds of work that leave per second, as lately seen; else one per GPU."""
        if len(self._ends) < 2 or now <= self._ends[0][0]:
            return float(gpus)
        seen = sum(work for _, work in self._ends) / (now - self._ends[0][0])
        return seen or float(gpus)

    def _sum(self, now: float) -> None:
        """Make the sum anew; a shape is looked up once."""
        known: dict[_Shape, _Work | None] = {}
        live = self._table.live
        for record in live.values():
            shape = _shape(record.request)
            if shape not in known:
                known[shape] = self._work(record.request)
        self._left = {
            request_id: self._left_of(record, known[_shape(record.request)])
            for request_id, record in live.items()
        }
        self._total_s = sum(self._left.values())
        self._summed_at = now

    def _left_of(self, record: RequestRecord, work: _Work | None) -> float:
        request, stage = record.request, record.stage
        if work is None:
            return self._guess(request)
        group = record.group
        done = group.step if group is not None and stage is Stage.DIT else record.step
        return work.of(request.num_inference_steps - done, stage)

    def _guess(self, request: GenerationRequest) -> float:
        return self._per_pixel_step * request.pixels * request.num_inference_steps

    def _work(self, request: GenerationRequest) -> _Work | None:
        encode, step, decode = (self._times.seconds(request, stage) for stage in Stage)
        if encode is None or step is None or decode is None:
            return None
        work = _Work(encode, step, decode)
        # What is known last is the measure of what is not.
        self._per_pixel_step = _whole(work, request) / (
            request.pixels * request.num_inference_steps
        )
        return work


def _whole(work: _Work, request: GenerationRequest) -> float:
    return work.of(request.num_inference_steps, Stage.ENCODER)


def _shape(request: GenerationRequest) -> _Shape:
    return (
        request.model,
        request.width,
        request.height,
        request.num_frames,
        request.guidance_scale > 1.0,
    )
