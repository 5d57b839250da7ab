"""Evacuation: running work moves off machines that are to be given back."""

from __future__ import annotations

from collections import Counter

from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group, GroupState, GroupTable
from elastic_dit.control.orders import Orders
from elastic_dit.control.requests import RequestTable
from elastic_dit.request import Stage, StageKey

__all__ = ["Evacuation"]

_WORTH_STEPS = 2
"""A run with fewer steps to go ends where it is: moving would cost about as much."""


class Evacuation:
    """Stops denoising at its next step boundary where it can go on elsewhere.

    A run on a retiring machine is stopped only while a GPU of another machine is free for it,
    after the dispatch policy has had its turn with those that wait; it then waits with what it
    has done so far, and the policy starts it anew. All other work on a retiring machine is short
    enough to end there.

    Parameters
    ----------
    table, pool, groups, orders, log
        The controller's parts.
    """

    def __init__(
        self,
        table: RequestTable,
        pool: GpuPool,
        groups: GroupTable,
        orders: Orders,
        log: DecisionLog,
    ) -> None:
        self._table = table
        self._pool = pool
        self._groups = groups
        self._orders = orders
        self._log = log

    def __repr__(self) -> str:
        return f"<Evacuation from {self._pool!r}>"

    def go(self, now: float) -> None:
        """Stop what can move; O(groups that denoise)."""
        moving: Counter[StageKey] = Counter()
        for group in tuple(self._groups.working(Stage.DIT)):
            if not self._pool[group.master].retiring:
                continue
            if self._may_move(group) and len(self._pool.free(group.key)) > moving[group.key]:
                reason = f"{self._pool[group.master].node} is to be given back"
                self._orders.preempt(self._table.live[group.request_id], reason, now)
                self._log.add(now, "move away", group.request_id, group.gpus, reason)
            moving[group.key] += group.state is GroupState.PREEMPTING

    @staticmethod
    def _may_move(group: Group) -> bool:
        left = group.total_steps - group.step
        return group.state is GroupState.RUNNING and left >= _WORTH_STEPS
