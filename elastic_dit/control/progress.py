"""How far a request is and when it will be done."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.control.view import StageTimes
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import Progress

__all__ = ["ObservedTimes", "progress_of"]

_Shape = tuple[str, Stage, int, int, int, int, bool]


@dataclass(slots=True)
class _Mean:
    value: float = 0.0
    count: int = 0


class ObservedTimes:
    """Running means of what stages took here, by model, stage, size and DoP.

    The simplest `elastic_dit.control.view.StageTimes`: it knows only what it has seen.

    Parameters
    ----------
    window : int
        Samples after which older ones fade.

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r", model="m", prompt="p", width=64, height=64, num_frames=1, fps=8,
    ...     num_inference_steps=4, guidance_scale=1.0, seed=0)
    >>> times = ObservedTimes()
    >>> times.observe(request, Stage.DIT, 1, 0.2)
    >>> times.observe(request, Stage.DIT, 1, 0.4)
    >>> round(times.seconds(request, Stage.DIT), 3)
    0.3
    >>> times.seconds(request, Stage.DECODER) is None
    True
    """

    def __init__(self, window: int = 20) -> None:
        self._window = window
        self._means: dict[_Shape, _Mean] = {}

    def __repr__(self) -> str:
        return f"<ObservedTimes of {len(self._means)} stage shapes>"

    @property
    def shapes(self) -> int:
        """How many shapes it has seen; grows when one is seen for the first time."""
        return len(self._means)

    def observe(
        self,
        request: GenerationRequest,
        stage: Stage,
        dop: int,
        seconds: float,
        kind: str = "",  # noqa: ARG002
    ) -> None:
        """Add what one stage took, or one step of the DiT, in seconds, on a kind of GPU."""
        shape = _shape(request, stage, dop)
        mean = self._means.get(shape)
        if mean is None:
            mean = self._means[shape] = _Mean()
        if mean.count < self._window:
            mean.count += 1
        mean.value += (seconds - mean.value) / mean.count

    def seconds(
        self,
        request: GenerationRequest,
        stage: Stage,
        dop: int = 1,
        kind: str = "",  # noqa: ARG002
    ) -> float | None:
        """Mean seconds of a stage, of one step for the DiT; None where none was seen."""
        mean = self._means.get(_shape(request, stage, dop))
        return mean.value if mean else None

    def guess(self, request: GenerationRequest, stage: Stage) -> float | None:
        """Seconds on one GPU by the seen shape of the most similar size, in proportion to it.

        None where no shape of the model was seen. A guess to rank requests by until their own
        shape is seen, no more: the smaller a shape, the less it is proportional to its size.
        """
        size = request.width * request.height * request.num_frames
        nearest: tuple[float, float] | None = None
        for (model, other, width, height, frames, dop, _), mean in self._means.items():
            if (model, other, dop) == (request.model, stage, 1):
                ratio = size / (width * height * frames)
                found = (max(ratio, 1 / ratio), mean.value * ratio)
                nearest = min(nearest or found, found)
        return None if nearest is None else nearest[1]


def _shape(request: GenerationRequest, stage: Stage, dop: int) -> _Shape:
    guided = request.guidance_scale > 1.0
    frames = request.num_frames
    return (request.model, stage, request.width, request.height, frames, dop, guided)


def progress_of(
    record: RequestRecord,
    table: RequestTable,
    pool: GpuPool,
    times: StageTimes,
    now: float,
    at: float,
) -> Progress:
    """What a client sees of its request.

    Parameters
    ----------
    record, table, pool
        The controller's state.
    times : StageTimes
        By which to say when it will be done.
    now : float
        Seconds on the control plane's clock.
    at : float
        Wall-clock seconds to put on the report.
    """
    waits = record.phase.is_waiting
    queue = table.queues.get(record.key)
    group = record.group
    return Progress(
        request_id=record.request_id,
        phase=record.phase,
        step=group.step if group and group.stage is Stage.DIT else record.step,
        total_steps=record.request.num_inference_steps,
        dop=group.dop if group else 0,
        queue_position=queue.position(record) if waits and queue else 0,
        eta_s=_eta_s(record, table, pool, times, now),
        attempt=record.attempt,
        at=at,
    )


def _eta_s(
    record: RequestRecord, table: RequestTable, pool: GpuPool, times: StageTimes, now: float
) -> float | None:
    """Seconds until the result: what is left of this stage, what follows, and the queues."""
    if record.phase.is_terminal:
        return 0.0
    stages = tuple(Stage)[tuple(Stage).index(record.stage) :]
    total = 0.0
    for stage in stages:
        unit_s = _unit_s(record, stage, pool, times)
        if unit_s is None:
            return None
        seconds = unit_s * _units(record, stage)
        total += seconds + _queue_s(record, stage, seconds, table, pool)
        group = _group(record, stage)
        if group is not None:
            # What is overdue may end any moment; what comes after it takes its time all the same.
            total -= min(now - group.step_at, unit_s, seconds)
    return total


def _group(record: RequestRecord, stage: Stage) -> Group | None:
    return record.group if record.stage is stage else None


def _unit_s(record: RequestRecord, stage: Stage, pool: GpuPool, times: StageTimes) -> float | None:
    """Seconds of a stage, of one step for the DiT: on the GPUs at work, else on one that may be."""
    group = _group(record, stage)
    able = pool.serving(StageKey(record.request.model, stage)) if group is None else group.gpus
    number = next(iter(able), None)
    gpu = None if number is None else pool.get(number)
    dop = 1 if group is None else group.dop
    return times.seconds(record.request, stage, dop, "" if gpu is None else gpu.kind)


def _units(record: RequestRecord, stage: Stage) -> int:
    if stage is not Stage.DIT:
        return 1
    group = _group(record, stage)
    return record.request.num_inference_steps - (record.step if group is None else group.step)


def _queue_s(
    record: RequestRecord, stage: Stage, seconds: float, table: RequestTable, pool: GpuPool
) -> float:
    """Wait for those ahead, taking them for alike: each GPU of the stage serves one at a time."""
    key = StageKey(record.request.model, stage)
    queue = table.queues.get(key)
    if queue is None or (record.stage is stage and not record.phase.is_waiting):
        return 0.0
    here = record.stage is stage
    ahead = queue.position(record) if here else len(queue)
    return seconds * ahead / max(1, len(pool.serving(key)))
