"""What engines report of themselves and of their stages, and the plans that concern them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastic_dit import events
from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.departures import Departure
from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.groups import GroupTable
from elastic_dit.control.lifecycle import Lifecycle
from elastic_dit.control.planner import stage_name
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.residency import Residency
from elastic_dit.control.step_watch import StepWatch
from elastic_dit.request import StageKey
from elastic_dit.state import Failure, GpuId

__all__ = ["EngineReports"]

_Handler = Callable[[Any, float], bool]


class EngineReports:
    """Handles the events of engines; each handler says whether there is something to decide anew.

    Parameters
    ----------
    table, pool, groups, life, residency, watch, log
        The controller's parts.
    emit : callable
        Takes the commands.
    load_grace_s : float
        See `ControlConfig`.
    action_timeout_s : float
        See `PlacementConfig`.

    Attributes
    ----------
    handlers : mapping of type to callable
        By event.
    """

    def __init__(
        self,
        *,
        table: RequestTable,
        pool: GpuPool,
        groups: GroupTable,
        life: Lifecycle,
        residency: Residency,
        watch: StepWatch,
        log: DecisionLog,
        emit: Callable[[events.Command], None],
        load_grace_s: float,
        action_timeout_s: float,
    ) -> None:
        self._table = table
        self._pool = pool
        self._groups = groups
        self._life = life
        self._residency = residency
        self._watch = watch
        self._log = log
        self._emit = emit
        self._load_grace_s = load_grace_s
        self._action_timeout_s = action_timeout_s
        self.handlers: Mapping[type, _Handler] = {
            events.EngineJoined: self._joined,
            events.EngineLost: self._lost,
            events.MembersLost: self._members_lost,
            events.StageLoaded: self._loaded,
            events.StageDropped: self._dropped,
            events.StageLoadFailed: self._load_failed,
            events.PlanPublished: self._plan_published,
            events.NodeLeaves: self._node_leaves,
        }

    def __repr__(self) -> str:
        return f"<EngineReports of {self._pool!r}>"

    def fail_hopeless(self, now: float) -> bool:
        """Fail what waits for a stage that no GPU could load; whether anything does."""
        any_failed = False
        if not self._residency.ever_failed:  # asked with every tick: go through nothing
            return False
        for key, queue in self._table.queues.items():
            if key not in self._residency.ever_failed or not len(queue):
                continue
            cause = self._residency.hopeless(key, now, self._load_grace_s)
            if cause is None:
                continue
            failure = Failure(error_type="ModelLoadError", message=cause, stage=key.stage)
            for record in list(queue):
                self._life.fail_waiting(record, failure, now)
            any_failed = True
        return any_failed

    def restart_overdue(self, now: float) -> bool:
        """Give engines up that do not carry a load, drop or stage out; whether there are any."""
        limit_s = self._action_timeout_s
        orders = self._residency.overdue(now, limit_s)
        hung = self._watch.hung(now)
        if not orders and not hung:
            return False
        overdue = {gpu: f"no word of its {order} within {limit_s:g} s" for gpu, order in orders}
        overdue |= dict(hung)
        for gpu, reason in overdue.items():
            self._lose(gpu, reason, now)
            self._emit(events.RestartEngine(gpu=gpu, reason=reason))
        return True

    # ------------------------------------------------------------------------------- engines
    def _joined(self, event: events.EngineJoined, now: float) -> bool:
        known = self._pool.get(event.gpu)
        if known is not None and known.name == event.name:
            return False
        if known is not None:
            self._lose(event.gpu, f"replaced by {event.name}", now)
        gpu = Gpu(
            gpu=event.gpu,
            name=event.name,
            node=event.node,
            kind=event.kind,
            memory_bytes=event.memory_bytes,
            joined_at=now,
            resident={StageKey(model, stage) for model, stage in event.resident},
        )
        self._pool.add(gpu)
        self._residency.joined(gpu)
        self._log.add(now, "join", event.name, (event.gpu,), f"{event.kind} on {event.node}")
        return True

    def _lost(self, event: events.EngineLost, now: float) -> bool:
        if event.gpu not in self._pool:
            return False
        self._lose(event.gpu, event.reason, now, expected=event.expected)
        return True

    def _members_lost(self, event: events.MembersLost, now: float) -> bool:
        group = self._groups.find(event.request_id, event.attempt, event.epoch)
        lost = group.held.intersection(event.gpus) if group is not None else ()
        for gpu in sorted(lost):
            self._lose(gpu, event.reason, now)
            self._emit(events.RestartEngine(gpu=gpu, reason=event.reason))
        return bool(lost)

    def _lose(self, gpu: GpuId, reason: str, now: float, *, expected: bool = False) -> None:
        lost = self._pool[gpu]
        if self._residency.departures.get(lost.node) is Departure.LEAVING:
            reason, expected = f"{lost.node} was given back", True
        self._log.add(now, "lost", lost.name, (gpu,), reason)
        self._life.engine_lost(gpu, reason, now, expected=expected)

    # -------------------------------------------------------------------------------- stages
    def _loaded(self, event: events.StageLoaded, now: float) -> bool:
        gpu = self._pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        why = self._residency.loaded(gpu, key)
        reason = f"{why} (took {event.seconds:.2f} s)"
        self._log.add(now, "load", stage_name(key), (gpu.gpu,), reason)
        return True

    def _dropped(self, event: events.StageDropped, now: float) -> bool:
        gpu = self._pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        why = self._residency.dropped(gpu, key)
        self._log.add(now, "drop", stage_name(key), (gpu.gpu,), why)
        return True

    def _load_failed(self, event: events.StageLoadFailed, now: float) -> bool:
        gpu = self._pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        self._residency.load_failed(gpu, key, event.message)
        self._log.add(now, "load failed", stage_name(key), (gpu.gpu,), event.message)
        self.fail_hopeless(now)
        return True

    # --------------------------------------------------------------------- plans and machines
    def _plan_published(self, event: events.PlanPublished, now: float) -> bool:
        plan, before = event.plan, self._residency.plan
        if not self._residency.publish(plan):
            return False
        self._log.add(now, "plan", f"epoch {plan.epoch}", (), plan.reason)
        if plan.nodes is not None and plan.nodes != before.nodes:
            self._log.add(now, "ask machines", f"{plan.nodes} in all", (), plan.reason)
        return True

    def _node_leaves(self, event: events.NodeLeaves, now: float) -> bool:
        if not self._residency.departures.leave(event.node):
            return False
        gpus = tuple(sorted(self._pool.node(event.node)))
        reason = self._residency.departures.reason(event.node)
        self._log.add(now, "machine leaves", event.node, gpus, reason)
        return False
