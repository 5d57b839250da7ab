"""Groups of fake engines: the same conversation with the shell as `engine.spmd`, without torch.

Members are threads of one process that share one state, so whoever is master can go on. A member
that was aborted leaves without a word; the others miss it when their shells say that it is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_dit.engine.group_context import (
    Change,
    End,
    GroupContext,
    GroupSeat,
    Outcome,
    Regroup,
)
from elastic_dit.engine.protocol import SNAPSHOT, Boundary, Checkpoint, StageStopped
from elastic_dit.state import GpuId

__all__ = ["FakeGroups", "FakeMember"]

LOOK_S = 0.005
"""How often a waiting member looks whether it was aborted or another is lost, seconds."""

State = Mapping[str, Any]


@dataclass
class _Run:
    """What the members of one run share, under one lock."""

    state: State
    members: tuple[GpuId, ...] = ()
    changes: list[Change] = field(default_factory=list)
    waiting: set[tuple[str, GpuId]] = field(default_factory=set)
    end: Outcome | None = None


class FakeGroups:
    """Where the fake engines of one process meet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, _Run] = {}

    def __repr__(self) -> str:
        return f"<FakeGroups {len(self._runs)} runs>"


class FakeMember:
    """One fake engine's part in one run.

    Parameters
    ----------
    groups : FakeGroups
    seat : GroupSeat
    context : GroupContext
    total_steps : int
    step : callable
        ``(state, members) -> state``: pretends to compute one step.
    """

    def __init__(
        self,
        groups: FakeGroups,
        seat: GroupSeat,
        context: GroupContext,
        total_steps: int,
        step: Callable[[State, int], State],
    ) -> None:
        self._groups = groups
        self._changed = groups._changed
        self._seat = seat
        self._context = context
        self._total = total_steps
        self._compute = step
        self._heard = 0
        self._order: Regroup | None = None

    def __repr__(self) -> str:
        return f"<FakeMember {self._seat.gpu} of {self._seat.run}>"

    def lead(self, state: State) -> Outcome:
        """Begin the run with this member alone."""
        run = _Run(state, (self._seat.gpu,))
        with self._changed:
            self._groups._runs[self._seat.run] = run
            self._changed.notify_all()
        return self._work(run)

    def join(self) -> Outcome:
        """Wait to be admitted, then be a member."""
        place = (self._seat.ticket, self._seat.gpu)
        with self._changed:
            run = self._wait(lambda: self._groups._runs.get(self._seat.run))
            if run is None:
                return Outcome(end=End.RELEASED, step=-1, reason="not admitted")
            run.waiting.add(place)
            self._changed.notify_all()
            self._heard = len(run.changes)
            self._wait(lambda: self._seat.gpu in run.members or run.end)
            run.waiting.discard(place)
        return self._work(run)

    def _work(self, run: _Run) -> Outcome:
        while True:
            with self._changed:
                self._wait(lambda: self._has_news(run))
                self._tell_changes(run)
                if self._context.aborted():
                    return Outcome(end=End.ABORTED, step=run.state["step"])
                if self._seat.gpu not in run.members:
                    return Outcome(end=End.RELEASED, step=run.state["step"])
                if run.end is not None:
                    return Outcome(end=run.end.end, step=run.end.step, reason=run.end.reason)
                if run.members[0] != self._seat.gpu:
                    continue
            if (outcome := self._lead_on(run)) is not None:
                return outcome

    def _has_news(self, run: _Run) -> bool:
        lost = self._context.lost().intersection(run.members) - {self._seat.gpu}
        if lost:
            members = tuple(gpu for gpu in run.members if gpu not in lost)
            size = 1 << (len(members).bit_length() - 1)
            self._change(run, members[:size], lost=tuple(sorted(lost)))
        is_master = run.members[:1] == (self._seat.gpu,)
        is_out = self._seat.gpu not in run.members
        return is_master or is_out or run.end is not None or self._heard < len(run.changes)

    def _lead_on(self, run: _Run) -> Outcome | None:
        """One boundary of the master, and the step after it."""
        step = run.state["step"]
        order = self._context.boundary(step, self._total)
        if isinstance(order, Regroup):
            self._order = order
        elif isinstance(order, Checkpoint):
            order.take({SNAPSHOT: run.state}, step)
        elif order is Boundary.ABORT:
            return self._end(run, Outcome(end=End.ABORTED, step=step))
        if step == self._total:
            return self._end(run, Outcome(end=End.FINISHED, step=step, payload=run.state))
        if order is Boundary.PREEMPT:
            return self._end(run, Outcome(end=End.PREEMPTED, step=step, payload=run.state))
        if self._regrouped(run):
            return None
        try:
            state = self._compute(run.state, len(run.members))
        except Exception as error:
            if not isinstance(error, StageStopped):
                self._end(run, Outcome(end=End.DISSOLVED, step=step, reason=str(error)))
            raise
        with self._changed:
            run.state = state
        return None

    def _regrouped(self, run: _Run) -> bool:
        order = self._order
        if order is None:
            return False
        with self._changed:
            joiners = [(order.ticket, gpu) for gpu in order.members if gpu not in run.members]
            self._changed.wait_for(lambda: run.waiting.issuperset(joiners), order.patience_s)
            if not run.waiting.issuperset(joiners):
                return False
            self._order = None
            if order.members == run.members:
                return False
            self._change(run, order.members, ticket=order.ticket)
        return True

    def _change(
        self,
        run: _Run,
        members: tuple[GpuId, ...],
        ticket: str = "",
        lost: tuple[GpuId, ...] = (),
    ) -> None:
        released = tuple(sorted(set(run.members) - {*members, *lost}))
        run.changes.append(
            Change(
                members=members,
                step=run.state["step"],
                ticket=ticket,
                lost=lost,
                released=released,
            )
        )
        run.members = members
        self._changed.notify_all()

    def _tell_changes(self, run: _Run) -> None:
        for change in run.changes[self._heard :]:
            if self._seat.gpu in change.members:
                self._context.changed(change)
        self._heard = len(run.changes)

    def _end(self, run: _Run, outcome: Outcome) -> Outcome:
        with self._changed:
            run.end = replace(outcome, payload=None)
            if outcome.end is End.FINISHED:
                run.end = Outcome(end=End.RELEASED, step=outcome.step, reason="all steps are done")
            # The run stays known: who comes to join only now must hear that it is over.
            run.state = {"step": outcome.step}
            self._changed.notify_all()
        return outcome

    def _wait(self, condition: Callable[[], Any]) -> Any:
        """First true value of `condition`; a false one where this member is aborted first."""
        while not (found := condition()) and not self._context.aborted():
            self._changed.wait(LOOK_S)
        return found
