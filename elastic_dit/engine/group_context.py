"""How the members of a group talk to their shells, and a context that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from elastic_dit.engine.protocol import Boundary, Checkpoint
from elastic_dit.engine.session import Snapshot
from elastic_dit.state import GpuId

__all__ = [
    "Change",
    "End",
    "GroupContext",
    "GroupLimits",
    "GroupSeat",
    "Outcome",
    "Regroup",
    "ScriptedContext",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Order to go on with other members at a step boundary: promotion, demotion or both.

    Attributes
    ----------
    members : tuple of int
        GPU ids wanted, ascending; at least one of the present members is among them.
    ticket : str
        Names this order; those who shall join were given the same one.
    patience_s : float
        How long in all the group may stand still for joiners that are not there yet, seconds.
        After that it goes on as it is, and regroups at the first boundary at which all are there.
    """

    members: tuple[GpuId, ...]
    ticket: str
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A group has other members now.

    Attributes
    ----------
    members : tuple of int
        Present members, the master first.
    step : int
        Denoising steps done.
    ticket : str
        The order carried out; empty after a failure.
    lost : tuple of int
        Members that did not answer any more.
    released : tuple of int
        Members that left unharmed.
    """

    members: tuple[GpuId, ...]
    step: int
    ticket: str = ""
    lost: tuple[GpuId, ...] = ()
    released: tuple[GpuId, ...] = ()


class End(Enum):
    """How a member's part in a run ended."""

    FINISHED = "finished"
    """All steps are done; the master has the payload for the decoder."""
    PREEMPTED = "preempted"
    """Stopped at a boundary; the master has the snapshot."""
    ABORTED = "aborted"
    """Stopped at a boundary for good."""
    RELEASED = "released"
    """This member left, or never joined; the others may go on."""
    DISSOLVED = "dissolved"
    """Another member raised something that no regrouping heals; `Outcome.reason` says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a member's part in a run.

    Attributes
    ----------
    end : End
    step : int
        Denoising steps done in this member's state; -1 where it had none.
    payload : Payload or None
        At the master: for the decoder after ``FINISHED``, the snapshot after ``PREEMPTED``.
    reason : str
        For the log.
    """

    end: End
    step: int
    payload: Snapshot | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Waits of a member, seconds.

    Attributes
    ----------
    join_s : float
        Longest wait of a joiner to be admitted; longer than the longest step.
    step_floor_s : float
        A step is never given up before that.
    step_factor : float
        A step that takes this many times what the steps before make expect has a hung member.
    collective_s : float
        Longest wait of one exchange, and longest first step; longer than the longest step.
    settle_s : float
        After a failure: how long survivors wait for one another.
    """

    join_s: float = 120.0
    step_floor_s: float = 5.0
    step_factor: float = 4.0
    collective_s: float = 60.0
    settle_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeat:
    """A member's place in one run.

    Attributes
    ----------
    gpu : int
        This member.
    run : str
        Names one start of one request's denoising; the same at all members.
    store : str
        ``host:port`` of the store on which groups meet.
    host : str
        This machine's address for the other members.
    ticket : str
        The order by which it joins; empty for the member that begins the run.
    max_dop : int
        Largest group.
    limits : GroupLimits
    """

    gpu: GpuId
    run: str
    store: str
    host: str = "127.0.0.1"
    ticket: str = ""
    max_dop: int = 8
    limits: GroupLimits = field(default_factory=GroupLimits)


class GroupContext(Protocol):
    """One member's shell. Methods are quick and thread-safe."""

    def boundary(self, step: int, total_steps: int) -> Boundary | Regroup | Checkpoint:
        """Master only: report `step` steps done and learn what to do next.

        Also asked before the first step, and again after each regroup. Each order is given
        once; a newer `Regroup` replaces one that still waits for its joiners.
        """
        ...

    def aborted(self) -> bool:
        """Whether to give up waiting to join."""
        ...

    def lost(self) -> frozenset[GpuId]:
        """Members known to be dead; saves the survivors from waiting for them."""
        ...

    def changed(self, change: Change) -> None:
        """Every present member: the group changed. ``change.members[0]`` has the mailbox now."""
        ...

    def refused(self, order: Regroup, reason: str) -> None:
        """Master only: `order` cannot be carried out; the group goes on as it is."""
        ...


class ScriptedContext:
    """A `GroupContext` without a shell: orders by the number of steps done.

    Parameters
    ----------
    orders : mapping of int to Boundary, Regroup or Checkpoint
        Given at the boundary after that many steps, once, to whoever is master then.

    Attributes
    ----------
    boundaries : list of int
        Steps reported.
    changes : list of Change
    refusals : list of str
    """

    def __init__(self, orders: Mapping[int, Boundary | Regroup | Checkpoint] | None = None) -> None:
        self._orders = dict(orders or {})
        self._lost: set[GpuId] = set()
        self._aborted = threading.Event()
        self.boundaries: list[int] = []
        self.changes: list[Change] = []
        self.refusals: list[str] = []

    def boundary(self, step: int, total_steps: int) -> Boundary | Regroup | Checkpoint:
        """The order for `step`."""
        assert step <= total_steps
        self.boundaries.append(step)
        return self._orders.pop(step, Boundary.CONTINUE)

    def aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted.is_set()

    def abort(self) -> None:
        """Let whoever waits to join give up."""
        self._aborted.set()

    def lost(self) -> frozenset[GpuId]:
        """What `lose` was told."""
        return frozenset(self._lost)

    def lose(self, gpu: GpuId) -> None:
        """Spread the news of a member's death."""
        self._lost.add(gpu)

    def changed(self, change: Change) -> None:
        """Remember `change`."""
        self.changes.append(change)

    def refused(self, order: Regroup, reason: str) -> None:
        """Remember `reason`."""
        assert order.members
        self.refusals.append(reason)
