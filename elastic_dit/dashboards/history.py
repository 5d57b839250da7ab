"""The last minutes of a cluster, in bounded rings: what the page shows beside the present."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from elastic_dit import events
from elastic_dit.control.controller import Controller
from elastic_dit.control.placement.demand import gpus_by_kind, workload_of
from elastic_dit.dashboards.lanes import Lanes
from elastic_dit.predict.balanced import BalancedRatio
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId, Phase

__all__ = ["WINDOW_S", "History", "Sample", "Trouble"]

WINDOW_S = 180.0
"""How far back the page looks, seconds."""
SAMPLE_S = 0.5
"""Least time between two samples of the queues, seconds."""
_SOON = 0.9
"""Part of it after which the next one may be taken: ticks are not exactly as far apart."""
PREDICT_S = 2.0
"""Seconds between two predictions, as between two looks of the placement policies."""
TROUBLES_KEPT = 100
"""Failures that stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Queues and GPUs at one moment.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    waiting : tuple of int
        Requests waiting for encoder, DiT and decoder, over all models.
    completed : int
        Requests completed so far.
    """

    at: float
    waiting: tuple[int, ...]
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that went wrong.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    what : str
        ``request failed``, ``stage failed``, ``load failed``, ``engine lost``, ``inputs lost`` or
        ``restarted``.
    subject : str
        A request, or a stage, or empty.
    gpus : tuple of int
        Where, as far as known.
    reason : str
    """

    at: float
    what: str
    subject: str
    gpus: tuple[GpuId, ...]
    reason: str


class History:
    """What has happened lately.

    Attributes
    ----------
    lanes : Lanes
        Who worked on which GPU.
    samples : deque of Sample
        Of the last `WINDOW_S`.
    troubles : deque of Trouble
        The last ones.
    predicted : dict of Stage to int, or None
        GPUs per stage that balance the stages' service rates for the latest arrivals
        (`BalancedRatio`); None while the stages' times are not known.
    weights_bytes : dict of StageKey to int
        What stages' weights take, as far as known.
    """

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.samples: deque[Sample] = deque(maxlen=round(WINDOW_S / SAMPLE_S))
        self.troubles: deque[Trouble] = deque(maxlen=TROUBLES_KEPT)
        self.predicted: dict[Stage, int] | None = None
        self.weights_bytes: dict[StageKey, int] = {}
        self._predictor = BalancedRatio()
        self._predicted_at = float("-inf")

    def __repr__(self) -> str:
        return f"<History {len(self.samples)} samples, {self.lanes!r}>"

    def note(
        self,
        controller: Controller,
        event: events.Event,
        commands: Iterable[events.Command],
        now: float,
    ) -> None:
        """Remember an event and what followed from it; O(1) unless a GPU changed hands.

        Parameters
        ----------
        controller : Controller
            As it is after the event.
        event : Event
        commands : iterable of Command
        now : float
            Seconds on the controller's clock.
        """
        self.lanes.follow(controller, now)
        for message in (event, *commands):
            told = _TROUBLES.get(type(message))
            if told is not None:
                what, subject, gpus, reason = told(message)
                self.troubles.append(
                    Trouble(at=now, what=what, subject=subject, gpus=gpus, reason=reason)
                )

    def tick(self, controller: Controller, now: float) -> None:
        """Let time pass: take a sample, predict if it is time.

        Parameters
        ----------
        controller : Controller
        now : float
            Seconds on its clock.
        """
        if self.samples and now - self.samples[-1].at < _SOON * SAMPLE_S:
            return
        waiting = dict.fromkeys(Stage, 0)
        for key, queue in controller.table.queues.items():
            waiting[key.stage] += len(queue)
        completed = controller.table.ended[Phase.COMPLETED]
        self.samples.append(Sample(at=now, waiting=tuple(waiting.values()), completed=completed))
        self.lanes.forget(controller.pool, controller.groups, now)
        if now - self._predicted_at >= PREDICT_S:
            self._predicted_at = now
            self._predict(controller, now)

    def per_minute(self, now: float) -> float:
        """Requests completed per minute, over the last minute or since the first sample."""
        lately = [sample for sample in self.samples if sample.at >= now - 60.0]
        if len(lately) < 2:
            return 0.0
        first, last = lately[0], lately[-1]
        return 60.0 * (last.completed - first.completed) / (last.at - first.at)

    def _predict(self, controller: Controller, now: float) -> None:
        snapshot = controller.snapshot(now)
        known = {queue.key: queue.weights_bytes for queue in snapshot.queues}
        self.weights_bytes = {key: nbytes for key, nbytes in known.items() if nbytes is not None}
        workload = workload_of(snapshot, snapshot.arrivals)
        gpus = gpus_by_kind(snapshot)
        if workload is None or sum(gpus.values()) < len(Stage):
            self.predicted = None
            return
        self.predicted = dict(self._predictor.predict(workload, gpus))


_Told = tuple[str, str, tuple[GpuId, ...], str]

_TROUBLES: dict[type, Callable[[Any], _Told]] = {
    events.EngineLost: lambda lost: ("engine lost", "", (lost.gpu,), lost.reason),
    events.RestartEngine: lambda lost: ("restarted", "", (lost.gpu,), lost.reason),
    events.StageLoadFailed: lambda load: (
        "load failed",
        f"{load.model}/{load.stage}",
        (load.gpu,),
        load.message,
    ),
    events.StageFailed: lambda event: (
        "stage failed",
        event.request_id,
        (),
        f"{event.failure.stage}: {event.failure}",
    ),
    events.InputsLost: lambda event: ("inputs lost", event.request_id, (), event.message),
    events.Fail: lambda fail: (
        "request failed",
        fail.request_id,
        (),
        f"{fail.failure.stage}: {fail.failure}",
    ),
}
