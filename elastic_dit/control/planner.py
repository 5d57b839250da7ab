"""The planner: asks the dispatch policy what to do and does what can be done."""

from __future__ import annotations

from elastic_dit.control import actions
from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.dispatch import DispatchPolicy
from elastic_dit.control.forced import ForcedDegrees
from elastic_dit.control.groups import GroupState
from elastic_dit.control.orders import Orders
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.control.times import AllowedTimes
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["Planner", "stage_name"]


class Planner:
    """Turns a policy's actions into orders, each before the next is asked for.

    What cannot be done is refused, logged and ends the planning of this event, so that a policy
    that insists cannot loop; so is an exception of the policy, since a mistake in it must not
    lose the event that it was asked about.

    Attributes
    ----------
    refused : int
        Actions refused and exceptions caught so far.
    stopped : bool
        Whether one of them ended the last planning before the policy was done.
    """

    def __init__(
        self,
        dispatch: DispatchPolicy,
        view: ClusterView,
        table: RequestTable,
        orders: Orders,
        log: DecisionLog,
        allowed: AllowedTimes,
        forced: ForcedDegrees,
    ) -> None:
        self._dispatch = dispatch
        self._view = view
        self._table = table
        self._orders = orders
        self._log = log
        self._allowed = allowed
        self._forced = forced
        self.refused = 0
        self.stopped = False

    def __repr__(self) -> str:
        return f"<Planner {self._dispatch!r}, {self.refused} refused>"

    def plan(self, now: float) -> None:
        """Ask the policy, or those that are forced, and carry out what it says."""
        self.stopped = False
        try:
            policy = self._forced if self._forced.is_due(self._view, now) else self._dispatch
            for action in policy.plan(self._view, now):
                problem = self._apply(action, now)
                if problem is not None:
                    self._refuse(action.request_id, f"{action}: {problem}", now)
                    return
        except Exception as error:
            self._refuse(repr(self._dispatch), f"{type(error).__name__}: {error}", now)

    def _refuse(self, subject: str, problem: str, now: float) -> None:
        self.refused += 1
        self.stopped = True
        self._log.add(now, "refused", subject, (), problem)

    def _apply(self, action: actions.Action, now: float) -> str | None:
        """Carry an action out; what stands against it, if anything does."""
        record = self._table.live.get(action.request_id)
        if record is None:
            return "no live request has this id"
        match action:
            case actions.Start():
                return self._start(record, action, now)
            case actions.Resize():
                return self._resize(record, action, now)
            case actions.Preempt():
                return self._preempt(record, action, now)
            case actions.Prefetch():
                return self._prefetch(record, action, now)

    def _start(self, record: RequestRecord, action: actions.Start, now: float) -> str | None:
        gpus = tuple(sorted(set(action.gpus)))
        if not record.phase.is_waiting:
            return f"the request is {record.phase}"
        problem = self._not_free(record.key, gpus) or self._too_wide(record, gpus)
        if problem is None:
            self._orders.start(record, gpus, action.reason, now)
        return problem

    def _resize(self, record: RequestRecord, action: actions.Resize, now: float) -> str | None:
        problem = _not_resizable(record)
        group = record.group
        if problem is not None or group is None:
            return problem
        gpus = tuple(sorted(set(action.gpus)))
        joiners = tuple(gpu for gpu in gpus if gpu not in group.gpus)
        if len(joiners) == len(gpus):
            return "no member stays to pass the latents on"
        if gpus == group.gpus:
            return "the group is as it shall be"
        problem = self._not_free(group.key, joiners) if joiners else None
        problem = problem or self._too_wide(record, gpus)
        if problem is None:
            self._orders.resize(record, gpus, action.reason, now)
        return problem

    def _preempt(self, record: RequestRecord, action: actions.Preempt, now: float) -> str | None:
        problem = _not_resizable(record)
        if problem is None:
            self._orders.preempt(record, action.reason, now)
        return problem

    def _prefetch(self, record: RequestRecord, action: actions.Prefetch, now: float) -> str | None:
        if not record.phase.is_waiting or not record.inputs or record.prepared is not None:
            return "the request has no inputs to pull ahead"
        if action.gpu not in self._view.prefetch_slots(record.key):
            return f"GPU {action.gpu} has no slot to pull ahead"
        self._orders.prefetch(record, action.gpu, action.reason, now)
        return None

    def _too_wide(self, record: RequestRecord, gpus: tuple[GpuId, ...]) -> str | None:
        if self._allowed.allows(record.request, len(gpus)):
            return None
        return f"it cannot run on {len(gpus)} GPUs now"

    def _not_free(self, key: StageKey, gpus: tuple[GpuId, ...]) -> str | None:
        if not gpus:
            return "no GPU is named"
        if self._view.are_free(key, gpus):
            return None
        taken = [gpu for gpu in gpus if not self._view.is_free(key, gpu)]
        return f"GPUs {taken} are not free for {stage_name(key)}"


def _not_resizable(record: RequestRecord) -> str | None:
    """Why a request's group can be neither resized nor preempted now."""
    group = record.group
    if group is None or group.stage is not Stage.DIT:
        return f"the request is {record.phase}"
    if group.state is not GroupState.RUNNING:
        return f"the group is {group.state}"
    return None


def stage_name(key: StageKey) -> str:
    """A stage for people: ``model/stage``."""
    return f"{key.model}/{key.stage}"
