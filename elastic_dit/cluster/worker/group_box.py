"""Where a member of a group finds what the control plane wants, and what it tells of it.

All that is said of a group comes from its master, over one stream, so nothing overtakes: what it
says under an epoch holds for the group of that epoch. A member that leaves says nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elastic_dit.cluster.worker.checkpoint_pace import CheckpointPace
from elastic_dit.cluster.worker.step_pace import StepPace
from elastic_dit.engine.group_context import Change, Regroup
from elastic_dit.engine.protocol import Boundary, Checkpoint
from elastic_dit.errors import ClusterError
from elastic_dit.events import Event, GpusFreed, MembersLost, Resize, ResizeRefused, StepDone
from elastic_dit.request import GenerationRequest
from elastic_dit.state import GpuId

__all__ = ["GroupBox", "RunKey"]

RunKey = tuple[str, int, int]
"""Request, attempt, and the epoch of the `StartStage`."""

_RANK = {Boundary.CONTINUE: 0, Boundary.PREEMPT: 1, Boundary.ABORT: 2}


@dataclass(slots=True)
class _Order:
    epoch: int
    gpus: tuple[GpuId, ...]
    patience_s: float = 0.0
    given: bool = False


class GroupBox:
    """The `GroupContext` of one member of one run.

    Parameters
    ----------
    gpu : int
        This member.
    request : GenerationRequest
    key : RunKey
    epoch : int
        By whose order it is a member.
    say : callable
        Takes events, from any thread, in order.
    pace : StepPace
        Of which boundaries it tells, besides the first of each group.

    Attributes
    ----------
    epoch : int
        That of the group at work.
    members : tuple of int
        Empty until this one is a member.
    checkpoints : CheckpointPace or None
        When it hands snapshots over.
    """

    def __init__(
        self,
        gpu: GpuId,
        request: GenerationRequest,
        key: RunKey,
        epoch: int,
        say: Callable[[Event], None],
        pace: StepPace,
    ) -> None:
        self.gpu = gpu
        self.request = request
        self.key = key
        self.epoch = epoch
        self.members: tuple[GpuId, ...] = ()
        self._say = say
        self._pace = pace
        self.checkpoints: CheckpointPace | None = None
        self._lock = threading.RLock()
        self._action = Boundary.CONTINUE
        self._order: _Order | None = None
        self._owed: set[GpuId] = set()
        self._lost: frozenset[GpuId] = frozenset()
        self._withdrawn = False
        self._step = 0

    def __repr__(self) -> str:
        return (
            f"<GroupBox {self.key[0]} dit attempt {self.key[1]} epoch {self.epoch} "
            f"on {self.members}: {self._action.value}>"
        )

    @property
    def fence(self) -> dict[str, Any]:
        """Fields of every message about the run."""
        return {"request_id": self.key[0], "attempt": self.key[1], "epoch": self.epoch}

    # ------------------------------------------------------------------ the event loop's side
    def lead(self, gpus: tuple[GpuId, ...], patience_s: float) -> None:
        """Begin the run here; the others of `gpus` shall join."""
        self.members = (self.gpu,)
        if len(gpus) > 1:
            self._order = _Order(self.epoch, gpus, patience_s)

    def post(self, action: Boundary) -> None:
        """Ask for an action; one that stops more thoroughly is not taken back."""
        if _RANK[action] > _RANK[self._action]:
            self._action = action

    def order(self, resize: Resize) -> None:
        """Take another order than the last one."""
        with self._lock:
            self._lost = (self._lost | set(resize.lost)).difference(resize.gpus)
            if resize.epoch <= self.epoch or (self._order and resize.epoch <= self._order.epoch):
                return
            if self._order is not None:
                self._owed.update(self._order.gpus)
            self._owed.difference_update({*resize.gpus, *self.members})
            self._order = _Order(resize.epoch, tuple(sorted(resize.gpus)))
            if not self.members:
                self._withdrawn = True  # what it waits for will not come; see `rejoins`
            self._adopt()

    def rejoins(self) -> int | None:
        """Epoch of an order to join that came too late for the membership that has ended."""
        order = self._order
        return order.epoch if order is not None and self.gpu in order.gpus else None

    # ------------------------------------------------------------------ the engine's side
    def boundary(self, step: int, total_steps: int) -> Boundary | Regroup | Checkpoint:
        """See `GroupContext.boundary`."""
        with self._lock:
            self._step = step
            if step and self._action is not Boundary.ABORT:
                if self._pace.tells(step, total_steps):
                    self._say(StepDone(**self.fence, step=step))
                if step == total_steps and len(self.members) > 1:
                    self._say(StepDone(**self.fence, step=step))
                    self._say(GpusFreed(**self.fence, gpus=self.members[1:]))
            if self._action is not Boundary.CONTINUE and not self._kept_now(step):
                return self._action
            return self._next_order() or self._checkpoint(step, total_steps) or Boundary.CONTINUE

    def _kept_now(self, step: int) -> bool:
        """Whether to wait a step with a preemption: its snapshot would be one that is kept."""
        checkpoints = self.checkpoints
        kept = checkpoints is not None and checkpoints.ordered_at(step)
        return kept and self._action is Boundary.PREEMPT

    def _checkpoint(self, step: int, total_steps: int) -> Checkpoint | None:
        return self.checkpoints.order(step, total_steps) if self.checkpoints else None

    def _next_order(self) -> Regroup | None:
        order = self._order
        if order is None or order.given:
            return None
        order.given = True
        return Regroup(members=order.gpus, ticket=str(order.epoch), patience_s=order.patience_s)

    def aborted(self) -> bool:
        """See `GroupContext.aborted`; also for a joiner that is not wanted any more."""
        return self.is_aborted or (self._withdrawn and not self.members)

    @property
    def is_aborted(self) -> bool:
        """Whether the control plane said so."""
        return self._action is Boundary.ABORT

    def lost(self) -> frozenset[GpuId]:
        """See `GroupContext.lost`."""
        return self._lost

    def changed(self, change: Change) -> None:
        """See `GroupContext.changed`."""
        with self._lock:
            self.members, self._step = change.members, change.step
            self._pace.restart()
            unknown = tuple(sorted(set(change.lost) - self._lost))
            self._lost = (self._lost | set(change.lost)).difference(change.members)
            self._owed.update(change.released)
            if change.ticket:
                self.epoch = max(self.epoch, int(change.ticket))
                self._tell_freed()
            if self._order is not None and self._order.epoch <= self.epoch:
                self._order = None
            if unknown and self._is_master:
                reason = f"lost by its group at step {change.step}"
                self._say(MembersLost(**self.fence, gpus=unknown, reason=reason))
            self._adopt()

    def refused(self, order: Regroup, reason: str) -> None:
        """See `GroupContext.refused`.

        Raises
        ------
        ClusterError
            Where the control plane believes that the whole group is at work already.
        """
        with self._lock:
            epoch = int(order.ticket)
            if self._order is not None and self._order.epoch == epoch:
                self._order = None
            if epoch == self.key[2]:
                raise ClusterError(f"GPUs {order.members} cannot begin as a group: {reason}")
            self._say(ResizeRefused(**{**self.fence, "epoch": epoch}, reason=reason))

    @property
    def _is_master(self) -> bool:
        return self.members[:1] == (self.gpu,)

    def _adopt(self) -> None:
        """An order for the group as it is, after a failure, only gives it another epoch."""
        order = self._order
        if order is None or order.gpus != self.members or order.epoch <= self.epoch:
            return
        self.epoch = order.epoch
        self._tell_freed()
        if self._is_master:
            self._say(StepDone(**self.fence, step=self._step))
        else:
            self._order = None

    def _tell_freed(self) -> None:
        """Say who has left; once the group has an epoch by which they are known to."""
        owed = tuple(sorted(self._owed.difference(self.members, self._lost)))
        self._owed.clear()
        if owed and self._is_master:
            self._say(GpusFreed(**self.fence, gpus=owed))
