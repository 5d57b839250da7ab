"""The step loop of a group: every member runs the same session, and any can carry on alone.

Between two steps the master asks its mailbox and broadcasts two numbers, the action and the
generation it leads to. State is sent only to members that join. Since all hold the whole state,
a failure costs no more than the step in which it happened: the survivors agree on the next
generation (`elastic_dit.engine.ledger`), take up the state of the last boundary and go on.

DDiT (§4.3) has a controller message every worker at each step; here no message outside the
group is needed between steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum

import torch

from elastic_dit.engine.devices import synchronize
from elastic_dit.engine.group_context import (
    Change,
    End,
    GroupContext,
    GroupLimits,
    Outcome,
    Regroup,
)
from elastic_dit.engine.groups import Group, GroupTable
from elastic_dit.engine.ledger import Generation, Ledger, shrunk
from elastic_dit.engine.protocol import Boundary, Checkpoint
from elastic_dit.engine.sequence_parallel import SequenceParallel
from elastic_dit.engine.session import Session, Snapshot
from elastic_dit.engine.state_transfer import broadcast_state, frozen, hand_over
from elastic_dit.errors import GroupBroken
from elastic_dit.state import GpuId

__all__ = ["GroupMember"]

MAX_FAILURES = 8
"""Failed attempts to go on after one failure."""


class _Action(IntEnum):
    CONTINUE = 0
    REGROUP = 1
    PREEMPT = 2
    ABORT = 3
    FINISH = 4


class GroupMember:
    """One GPU's part in one request's denoising.

    Parameters
    ----------
    session : Session
        This member's; `lead` needs it begun or restored.
    parallel : SequenceParallel
        Of the model that the session runs on.
    table : GroupTable
    ledger : Ledger
        Of the run.
    context : GroupContext
    dops : tuple of int
        Degrees of parallelism that the request allows.
    device : torch.device
    limits : GroupLimits
    """

    def __init__(
        self,
        session: Session,
        parallel: SequenceParallel,
        table: GroupTable,
        ledger: Ledger,
        context: GroupContext,
        *,
        dops: tuple[int, ...],
        device: torch.device,
        limits: GroupLimits,
    ) -> None:
        self.gpu = table.gpu
        self._session = session
        self._parallel = parallel
        self._table = table
        self._ledger = ledger
        self._context = context
        self._dops = dops
        self._device = device
        self._limits = limits
        self._generation = Generation(number=0, members=(self.gpu,))
        self._group: Group | None = None
        self._saved: Snapshot | None = None
        self._has_state = False
        self._waiting: Regroup | None = None
        self._patient_until = 0.0
        self._stop = Boundary.CONTINUE
        self._work_s = 0.0
        """Seconds of the longest step so far times its degree."""

    def __repr__(self) -> str:
        return f"<GroupMember {self.gpu} of {self._generation.members}, step {self._step}>"

    def lead(self) -> Outcome:
        """Run the session that this GPU has, alone until ordered otherwise."""
        self._has_state = True
        return self._run()

    def join(self, ticket: str) -> Outcome:
        """Wait to be admitted to a running group, take its state and run with it."""
        self._ledger.knock(ticket)
        joined = self._ledger.admission(ticket, self._limits.join_s, self._context.aborted)
        if joined is None:
            return self._left(End.RELEASED, "not admitted")
        return self._run(joined)

    # ------------------------------------------------------------------ the loop
    @property
    def _step(self) -> int:
        return self._session.step_index if self._has_state else -1

    @property
    def _is_master(self) -> bool:
        return self._generation.members[0] == self.gpu

    def _run(self, joined: Generation | None = None) -> Outcome:
        try:
            outcome = None if joined is None else self._attempt(lambda: self._follow(joined))
            while outcome is None:
                outcome = self._attempt(self._turn)
            return outcome
        except GroupBroken:
            raise
        except BaseException as error:
            self._dissolve(f"GPU {self.gpu}: {type(error).__name__}: {error}")
            raise
        finally:
            self._parallel.use(None)
            self._withdraw()

    def _attempt(self, part: Callable[[], Outcome | None]) -> Outcome | None:
        """Do `part`, and whatever it takes to go on where the group breaks."""
        try:
            return part()
        except GroupBroken as broken:
            error = broken
        for _ in range(MAX_FAILURES):
            try:
                return self._survive(error)
            except GroupBroken as broken:
                error = broken
        raise error

    def _turn(self) -> Outcome | None:
        """One boundary and the step after it."""
        action, number = self._agreed()
        match action:
            case _Action.CONTINUE:
                self._do_step()
                return None
            case _Action.REGROUP:
                return self._follow(self._written(number))
            case _Action.PREEMPT:
                snapshot = self._session.snapshot() if self._is_master else None
                return self._left(End.PREEMPTED, payload=snapshot)
            case _Action.ABORT:
                return self._left(End.ABORTED)
            case _Action.FINISH:
                if not self._is_master:
                    return self._left(End.RELEASED, "all steps are done")
                self._parallel.use(None)
                return self._left(End.FINISHED, payload=self._session.finish())

    def _do_step(self) -> None:
        if self._group is None:
            self._session.step()
            synchronize(self._device)
            return
        self._saved = frozen(self._session.snapshot())
        start = time.perf_counter()
        with self._watch(self._group, self._step_limit_s(self._group.size)):
            self._session.step()
            synchronize(self._device)
        self._work_s = max(self._work_s, (time.perf_counter() - start) * self._group.size)
        self._saved = None

    # ------------------------------------------------------------------ boundaries
    def _agreed(self) -> tuple[_Action, int]:
        """What the master decided, and the generation that follows."""
        decided = self._decide() if self._is_master else (_Action.CONTINUE, 0)
        if self._group is None:
            return decided
        with self._watch(self._group, self._table.timeout_s):
            action, number = self._group.broadcast(torch.tensor(decided), root=0).tolist()
        return _Action(action), number

    def _decide(self) -> tuple[_Action, int]:
        step, total = self._session.step_index, self._session.total_steps
        order = self._context.boundary(step, total)
        number = self._generation.number
        if isinstance(order, Regroup):
            self._take(order)
        elif isinstance(order, Checkpoint):
            hand_over(self._session, order)
        elif order is not Boundary.CONTINUE:
            self._stop = order  # it is given once, and must outlast a failed broadcast
        if self._stop is Boundary.ABORT:
            return _Action.ABORT, number
        if step == total:
            return _Action.FINISH, number
        if self._stop is Boundary.PREEMPT:
            return _Action.PREEMPT, number
        return self._regroup_if_ready()

    def _take(self, order: Regroup) -> None:
        self._withdraw()
        present = set(self._generation.members)
        if not present & set(order.members):
            self._refuse(order, "no present member is among the new ones")
        elif dead := sorted(self._context.lost() & set(order.members)):
            self._context.refused(order, f"GPU {dead[0]} is dead")
        elif len(order.members) not in self._dops:
            allowed = ", ".join(map(str, self._dops))
            self._refuse(order, f"degrees of parallelism allowed: {allowed}")
        elif tuple(sorted(order.members)) != self._generation.members:
            self._waiting = order
            patience_s = min(order.patience_s, self._table.timeout_s / 2)
            self._patient_until = time.monotonic() + patience_s

    def _refuse(self, order: Regroup, reason: str) -> None:
        with suppress(GroupBroken):  # without a store they give up by themselves
            self._ledger.withdraw(order.ticket, self._joiners(order))
        self._context.refused(order, reason)

    def _regroup_if_ready(self) -> tuple[_Action, int]:
        number = self._generation.number
        order = self._waiting
        if order is None:
            return _Action.CONTINUE, number
        joiners = self._joiners(order)
        patience_s = max(0.0, self._patient_until - time.monotonic())
        try:
            if joiners and not self._ledger.all_knocked(order.ticket, joiners, patience_s):
                return _Action.CONTINUE, number
            self._ledger.propose(self._ordered(order, bool(joiners)))
        except GroupBroken as error:  # of the store: the present group needs none
            self._waiting = None
            self._refuse(order, error.cause)
            return _Action.CONTINUE, number
        with suppress(GroupBroken):  # they do not come then, and their group breaks
            self._ledger.admit(order.ticket, joiners, number + 1)
        self._waiting = None
        return _Action.REGROUP, number + 1

    def _ordered(self, order: Regroup, transfer: bool) -> Generation:
        members = tuple(sorted(order.members))
        return Generation(
            number=self._generation.number + 1,
            members=members,
            epoch=self._table.epoch(members),
            source=min(set(members) & set(self._generation.members)),
            step=self._session.step_index,
            transfer=transfer,
            ticket=order.ticket,
        )

    def _joiners(self, order: Regroup) -> tuple[GpuId, ...]:
        return tuple(sorted(set(order.members) - set(self._generation.members)))

    def _withdraw(self) -> None:
        """Send away the joiners of an order that will not be carried out."""
        if self._waiting is not None:
            order, self._waiting = self._waiting, None
            with suppress(GroupBroken):
                self._ledger.withdraw(order.ticket, self._joiners(order))

    # ------------------------------------------------------------------ generations
    def _written(self, number: int) -> Generation:
        generation = self._ledger.read(number)
        if generation is None:
            raise GroupBroken(self._ledger.run, f"generation {number} is not on record")
        return generation

    def _follow(self, generation: Generation) -> Outcome | None:
        """Become a member of `generation`, or leave."""
        before = self._generation
        self._generation = generation
        self._group = None
        self._parallel.use(None)
        if not generation.members:
            return self._left(End.DISSOLVED, generation.reason)
        if self.gpu not in generation.members:
            return self._left(End.RELEASED, generation.reason or "not needed any more")
        if self._step != generation.step and not generation.transfer:
            return self._left(End.RELEASED, "behind the others")
        if len(generation.members) > 1:
            self._group = self._table.get(generation.key)
            if generation.transfer:
                self._share_state(self._group, generation)
            self._parallel.use(self._group)
        released = set(before.members) - {*generation.members, *generation.lost}
        self._context.changed(
            Change(
                members=generation.members,
                step=generation.step,
                ticket=generation.ticket,
                lost=generation.lost,
                released=tuple(sorted(released)),
            )
        )
        return None

    def _share_state(self, group: Group, generation: Generation) -> None:
        root = generation.members.index(generation.source)
        own = self._session.snapshot() if group.rank == root else None
        with self._watch(group, self._table.timeout_s):
            state = broadcast_state(group, own, root)
        if self._step != generation.step:
            self._session.restore(state)
            self._has_state = True

    def _survive(self, error: GroupBroken) -> Outcome | None:
        """Find the other survivors of a broken group and go on with them, or alone."""
        broken = self._generation
        if (saved := self._saved) is not None:
            self._session.restore(saved)
            self._saved = None
        self._parallel.use(None)
        if self._group is not None:
            self._table.drop(self._group, error.cause)
            self._group = None
        number = broken.number + 1
        following = self._ledger.read(number) or self._ledger.agree(
            number,
            members=broken.members,
            step=self._step,
            lost=self._context.lost,
            choose=lambda present: self._next(broken, present, error.cause),
        )
        return self._follow(following)

    def _next(self, broken: Generation, present: Mapping[GpuId, int], cause: str) -> Generation:
        """What the survivors of `broken` become."""
        lost = tuple(sorted(set(broken.members) - present.keys()))
        self._table.mark_broken(broken.members, lost)
        step = max(present.values())
        sources = sorted(gpu for gpu, done in present.items() if done == step)
        members = shrunk(sorted(present), sources, self._dops) if step >= 0 else ()
        return Generation(
            number=broken.number + 1,
            members=members,
            epoch=self._table.epoch(members),
            source=next((gpu for gpu in sources if gpu in members), -1),
            step=step,
            transfer=any(present[gpu] != step for gpu in members),
            lost=lost,
            reason=cause if members else f"nobody has the state: {cause}",
        )

    def _dissolve(self, reason: str) -> None:
        """End the run for all members."""
        if self._group is None:
            return
        ending = Generation(number=self._generation.number + 1, members=(), reason=reason)
        with suppress(GroupBroken):  # without a store the group's end alone tells the others
            self._ledger.propose(ending)
        self._table.drop(self._group, reason)
        self._group = None

    # ------------------------------------------------------------------ details
    def _left(self, end: End, reason: str = "", payload: Snapshot | None = None) -> Outcome:
        return Outcome(end=end, step=self._step, payload=payload, reason=reason)

    def _step_limit_s(self, size: int) -> float:
        if not self._work_s:
            return self._table.timeout_s
        expected = self._work_s / size
        return max(self._limits.step_floor_s, self._limits.step_factor * expected)

    @contextmanager
    def _watch(self, group: Group, limit_s: float) -> Iterator[None]:
        """Give `group` up where what is inside takes longer."""
        timer = threading.Timer(limit_s, group.abort, [f"no progress for {limit_s:.1f} s"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        if group.broken:  # on a GPU an aborted exchange ends without a word
            raise GroupBroken(str(group.key), group.broken)
