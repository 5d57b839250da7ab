"""What a policy weighs: requests that need denoising, with what it takes at every DoP."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from elastic_dit.control.groups import GroupState
from elastic_dit.control.view import ClusterView, GroupView, RequestView, StageTimes
from elastic_dit.request import GenerationRequest, Stage, StageKey

__all__ = ["Job", "ShapeTimes", "shape_of", "survey"]

_DOPS = (1, 2, 4, 8, 16, 32, 64)
_UNKNOWN_STEP_S = 1.0
"""Step time of what was never seen: any figure will do to rank it among its like."""


class ShapeTimes:
    """What requests of one shape take at every DoP.

    Attributes
    ----------
    step_s : dict of int to float
        Seconds of one step by DoP, rising DoP; DoP 1 is always there.
    fastest_s : float
        The smallest of them.
    decode_s : float
        Seconds that follow the denoising.
    read_at : float
        When they were asked for, seconds on the control plane's clock.
    """

    __slots__ = ("_widest", "decode_s", "fastest_s", "read_at", "step_s")

    def __init__(self, request: GenerationRequest, times: StageTimes, read_at: float = 0.0) -> None:
        self.read_at = read_at
        self.step_s = {1: times.seconds(request, Stage.DIT) or _UNKNOWN_STEP_S}
        for dop in _DOPS[1:]:
            seconds = times.seconds(request, Stage.DIT, dop)
            if seconds is None:
                break
            self.step_s[dop] = seconds
        self.decode_s = times.seconds(request, Stage.DECODER) or 0.0
        self.fastest_s = min(self.step_s.values())
        self._widest: dict[float, int] = {}

    def __repr__(self) -> str:
        return f"<ShapeTimes {self.step_s[1]:.3g} s a step, DoP up to {max(self.step_s)}>"

    def widest(self, efficiency: float) -> int:
        """Largest DoP at which the GPUs do at least this part of their work at DoP 1."""
        found = self._widest.get(efficiency)
        if found is None:
            alone = self.step_s[1]
            found = self._widest[efficiency] = max(
                dop
                for dop, seconds in self.step_s.items()
                if dop == 1 or alone >= efficiency * dop * seconds
            )
        return found


def shape_of(record: RequestView) -> tuple[object, ...]:
    """What the times of a request depend on: those of equal shape share one `ShapeTimes`."""
    asked = record.request
    size = (asked.model, asked.width, asked.height, asked.num_frames)
    return (*size, asked.num_inference_steps, asked.guidance_scale, record.dops)


class Job:
    """A request on its way to its last denoising step. Its state is read live.

    Parameters
    ----------
    record : RequestView
    view : ClusterView
    times : ShapeTimes, optional
        Of its shape; asked for where it is not given.

    Attributes
    ----------
    times : ShapeTimes
    request_id : str
    key : StageKey
        The DiT stage of its model.
    num_steps : int
        Denoising steps in all.
    deadline_at : float
        On the control plane's clock; infinite without a deadline.
    """

    __slots__ = ("deadline_at", "key", "num_steps", "record", "request_id", "times")

    def __init__(
        self, record: RequestView, view: ClusterView, times: ShapeTimes | None = None
    ) -> None:
        request = record.request
        self.record = record
        self.request_id = record.request_id
        self.num_steps = request.num_inference_steps
        self.key = StageKey(request.model, Stage.DIT)
        self.times = times or ShapeTimes(request, view.times)
        deadline_s = request.deadline_s
        self.deadline_at = math.inf if deadline_s is None else record.accepted_at + deadline_s

    def __repr__(self) -> str:
        return f"<Job {self.record!r} DoP {self.dop}>"

    @property
    def step_s(self) -> dict[int, float]:
        """Seconds of one step by DoP, rising DoP."""
        return self.times.step_s

    @property
    def waits(self) -> bool:
        """Whether a GPU would bring it forward."""
        return self.record.phase.is_waiting

    @property
    def group(self) -> GroupView | None:
        """Its denoising group, None while it waits or is encoded."""
        group = self.record.group
        return group if group is not None and group.stage is Stage.DIT else None

    @property
    def dop(self) -> int:
        """GPUs at work on it."""
        group = self.group
        return group.dop if group else 0

    @property
    def steady(self) -> bool:
        """Whether it denoises and has been told of no change."""
        group = self.group
        return group is not None and group.state is GroupState.RUNNING

    @property
    def steps_left(self) -> int:
        """Denoising steps to do."""
        group = self.record.group
        if group is not None and group.stage is Stage.DIT:
            return group.total_steps - group.step
        return self.num_steps - self.record.step

    @property
    def work_s(self) -> float:
        """GPU-seconds to do at DoP 1, where they are fewest."""
        return self.steps_left * self.times.step_s[1]

    def remaining_s(self, dop: int) -> float:
        """Seconds to the end on `dop` GPUs, decode included."""
        return self.steps_left * self.times.step_s[dop] + self.times.decode_s

    def widest(self, efficiency: float) -> int:
        """As `ShapeTimes.widest`."""
        return self.times.widest(efficiency)

    def gain_s(self, dop: int) -> float:
        """Seconds that twice `dop` GPUs would save from here, 0 where they cannot be had."""
        step_s = self.times.step_s
        wider_s = step_s.get(2 * dop)
        return 0.0 if wider_s is None else self.steps_left * (step_s[dop] - wider_s)


def survey(view: ClusterView, most: int) -> list[Job]:
    """Everything at work, and of what waits the first in line and the longest there.

    Parameters
    ----------
    view : ClusterView
    most : int
        Waiting requests of one queue to look at, and oldest requests: what bounds the time of a
        decision when thousands wait.
    """
    found: dict[str, RequestView] = {}
    for group in view.running(Stage.DIT):
        record = view.requests.get(group.request_id)
        if record is not None and record.group is group:
            found[record.request_id] = record
    for record in _in_line(view, most):
        found[record.request_id] = record
    shapes: dict[tuple[object, ...], ShapeTimes] = {}
    jobs = []
    for record in found.values():
        shape = shape_of(record)
        if shape not in shapes:
            shapes[shape] = ShapeTimes(record.request, view.times)
        jobs.append(Job(record, view, shapes[shape]))
    return jobs


def _in_line(view: ClusterView, most: int) -> Iterator[RequestView]:
    for stage in (Stage.DIT, Stage.ENCODER):
        for _, queue in view.queues(stage):
            yield from islice(queue, most)
    for record in islice(view.requests.values(), most):
        if record.phase.is_waiting and record.stage is not Stage.DECODER:
            yield record
