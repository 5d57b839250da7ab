"""Where a running stage finds what the control plane wants of it."""

from __future__ import annotations

from collections.abc import Callable

from elastic_dit.cluster.worker.checkpoint_pace import CheckpointPace
from elastic_dit.cluster.worker.step_pace import StepPace
from elastic_dit.engine.protocol import Boundary, Checkpoint
from elastic_dit.events import StartStage

__all__ = ["Mailbox"]

_RANK = {Boundary.CONTINUE: 0, Boundary.PREEMPT: 1, Boundary.ABORT: 2}


class Mailbox:
    """The `StageContext` of one started stage.

    Parameters
    ----------
    start : StartStage
        The command that started it.
    report : callable
        Called with the number of steps done, in the engine's thread.
    pace : StepPace
        At which boundaries.
    checkpoints : CheckpointPace, optional
        None by default.

    Notes
    -----
    The event loop posts, the engine's thread reads: both are single reads and writes of one
    attribute, which Python makes atomic.

    Examples
    --------
    >>> from elastic_dit.engine.fake import FAKE_CARD
    >>> from elastic_dit.request import Stage
    >>> request = FAKE_CARD.complete({"prompt": "a circle", "request_id": "r", "seed": 1})
    >>> start = StartStage(request=request, attempt=1, epoch=1, stage=Stage.DIT, gpus=(0,),
    ...                    inputs=(), reason="")
    >>> box = Mailbox(start, report=print, pace=StepPace())
    >>> box.post(Boundary.PREEMPT)
    >>> box.boundary(3, 12)
    3
    <Boundary.PREEMPT: 'preempt'>
    """

    def __init__(
        self,
        start: StartStage,
        report: Callable[[int], None],
        pace: StepPace,
        checkpoints: CheckpointPace | None = None,
    ) -> None:
        self.start = start
        self._report = report
        self._pace = pace
        self._checkpoints = checkpoints
        self._action = Boundary.CONTINUE

    def __repr__(self) -> str:
        start = self.start
        return (
            f"<Mailbox {start.request.request_id} {start.stage} attempt {start.attempt} "
            f"epoch {start.epoch}: {self._action.value}>"
        )

    def post(self, action: Boundary) -> None:
        """Ask for an action; one that stops more thoroughly is not taken back."""
        if _RANK[action] > _RANK[self._action]:
            self._action = action

    def boundary(self, step: int, total_steps: int) -> Boundary | Checkpoint:
        """See `StageContext.boundary`."""
        if self._pace.tells(step, total_steps):
            self._report(step)
        if self._action is not Boundary.CONTINUE or self._checkpoints is None:
            return self._action
        return self._checkpoints.order(step, total_steps) or Boundary.CONTINUE

    def aborted(self) -> bool:
        """See `StageContext.aborted`."""
        return self._action is Boundary.ABORT
