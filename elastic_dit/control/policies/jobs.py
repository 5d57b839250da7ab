"""What a policy weighs: requests that need denoising, with what it takes at every DoP."""

from __future__ import annotations

import math

from elastic_dit.control.groups import GroupState
from elastic_dit.control.policies.shape_times import ShapeBook, ShapeTimes
from elastic_dit.control.view import ClusterView, GroupView, RequestView
from elastic_dit.request import Stage, StageKey

__all__ = ["Job", "JobBook"]


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
        return self.record.in_line

    @property
    def group(self) -> GroupView | None:
        """Its denoising group, None while it waits or is encoded."""
        group = self.record.group
        return group if group is not None and group.stage is Stage.DIT else None

    @property
    def dop(self) -> int:
        """GPUs at work on it."""
        group = self.record.group
        return len(group.gpus) if group is not None and group.stage is Stage.DIT else 0

    @property
    def steady(self) -> bool:
        """Whether it denoises and has been told of no change."""
        group = self.record.group
        if group is None or group.stage is not Stage.DIT:
            return False
        return group.state is GroupState.RUNNING

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


class JobBook:
    """Jobs, remembered from look to look."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._shapes = ShapeBook()

    def __repr__(self) -> str:
        return f"<JobBook of {len(self._jobs)} jobs, {self._shapes!r}>"

    def begin(self, view: ClusterView, now: float) -> None:
        """A new look: forget what may have changed, and who has ended."""
        self._shapes.begin(view, now)
        live = view.requests
        # Not at every end: with thousands of requests that would be a matter of milliseconds.
        if len(self._jobs) > 2 * len(live):
            self._jobs = {
                sequence: job
                for sequence, job in self._jobs.items()
                if live.get(job.request_id) is job.record
            }

    def job(self, record: RequestView, view: ClusterView) -> Job:
        """The job of a request, the same at every look."""
        job = self._jobs.get(record.sequence)
        if job is None or job.record is not record:
            times = self._shapes.times(record, view)
            job = self._jobs[record.sequence] = Job(record, view, times)
        elif job.times.read_at != self._shapes.read_at:
            job.times = self._shapes.times(record, view)
        return job
