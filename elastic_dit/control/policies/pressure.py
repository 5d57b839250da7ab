"""Max-weight scheduling of stages that share GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from elastic_dit.control import actions
from elastic_dit.control.dispatch import nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.view import ClusterView, QueueView, RequestView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["Pressure"]

_SHORTEST_S = 1e-9
"""What takes less time counts as this: a pressure is a number."""


class Pressure:
    """A free GPU takes the stage of the largest pressure, at DoP 1.

    The pressure of a stage is the number of requests that wait for it less the number that wait
    for the next one, over its time: what a second of work takes off the queues. No policy keeps
    up with a load that this one does not (Tassiulas and Ephremides 1992, max-weight), which first
    come, first served does not reach where GPUs share stages in part: there the decodes of a
    GPU's own requests keep it from denoising while others, which hold no DiT, have time for them.

    Within a stage requests go in order of acceptance.
    """

    watches_steps = False
    watches_clock = False
    uses_groups = False

    def __repr__(self) -> str:
        return "Pressure()"

    def order(self, request: RequestView) -> tuple[object, ...]:  # noqa: ARG002
        """Order of acceptance."""
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:  # noqa: ARG002
        """Start what presses most, until no free GPU holds anything that does."""
        while (pressing := _most_pressing(view)) is not None:
            pressure, request = pressing
            yield actions.Start(
                request.request_id, (_least_wanted(view, request),), f"pressure {pressure:.3g}"
            )
        yield from prefetches(view)


def _most_pressing(view: ClusterView) -> tuple[float, RequestView] | None:
    best: tuple[float, RequestView] | None = None
    for stage in Stage:
        for key, queue in view.queues(stage):
            head = queue.head
            if head is None or not view.free(key) or not view.has_room_after(key):
                continue
            pressure = _pressure(view, key, queue, head)
            if pressure >= 0 and (best is None or pressure >= best[0]):
                best = (pressure, head)
    return best


def _least_wanted(view: ClusterView, request: RequestView) -> GpuId:
    """The free GPU that other stages press least for, the nearest of several."""
    nearest = nearest_gpu(view, request)
    assert nearest is not None, request
    least = _other_pressure(view, request.key, nearest)
    for gpu in view.free(request.key):
        if least <= 0:
            break
        other = _other_pressure(view, request.key, gpu)
        if other < least and gpu not in request.avoid:
            nearest, least = gpu, other
    return nearest


def _other_pressure(view: ClusterView, key: StageKey, gpu: GpuId) -> float:
    """The largest pressure of another stage that a GPU holds; 0 where none waits for it."""
    record = view.gpu(gpu)
    pressures = [0.0]
    for other in record.resident if record is not None else ():
        queue = view.queue(other)
        if other != key and queue is not None and queue.head is not None:
            pressures.append(_pressure(view, other, queue, queue.head, taken=key))
    return max(pressures)


def _pressure(
    view: ClusterView,
    key: StageKey,
    queue: QueueView,
    head: RequestView,
    taken: StageKey | None = None,
) -> float:
    """The pressure of a stage, once the first in line for the stage `taken` has been started."""
    following = key.stage.following
    after = StageKey(key.model, following) if following else None
    behind = view.queue(after) if after else None
    waiting = len(queue) - (len(behind) if behind else 0) + (after is not None and after == taken)
    seconds = view.times.seconds(head.request, key.stage)
    if seconds is not None and key.stage is Stage.DIT:
        seconds *= head.steps_left
    return waiting / max(seconds or 1.0, _SHORTEST_S)


register_dispatch("pressure", Pressure)
