"""The controller: events in, commands out, and nothing else.

It reads no clock, does no I/O, draws no random number: the same events give the same commands,
in production (`elastic_dit.cluster`) as in simulation (`elastic_dit.simulate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit import events
from elastic_dit.config import AdmissionConfig, ControlConfig
from elastic_dit.control.admission import Admission
from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.dispatch import DispatchPolicy, make_dispatch
from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.group_reports import GroupReports
from elastic_dit.control.groups import GroupTable
from elastic_dit.control.invariants import check_invariants
from elastic_dit.control.lifecycle import Lifecycle
from elastic_dit.control.observe import take_snapshot
from elastic_dit.control.orders import Orders
from elastic_dit.control.planner import Planner, stage_name
from elastic_dit.control.progress import ObservedTimes, progress_of
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.residency import Residency
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.control.times import AllowedTimes
from elastic_dit.control.view import ClusterView, StageTimes
from elastic_dit.request import GenerationRequest, StageKey
from elastic_dit.state import Failure, PlacementPlan, Progress

__all__ = ["Controller"]

_Handler = Callable[[Any, float], bool]


class Controller:
    """Request table, GPU pool and dispatch of one cluster, as a deterministic state machine.

    Parameters
    ----------
    config : ControlConfig
    dispatch : DispatchPolicy, optional
        By default a fresh one of the name in `config`.
    times : StageTimes, optional
        What the policy is told that stages cost; by default what was observed here.
    observed : ObservedTimes, optional
        Where to keep that.

    Attributes
    ----------
    allowed : AllowedTimes
        Limits the degrees of parallelism; ``allowed.widest`` may be changed at any time.

    memory : MemoryModel, optional
        What placement policies are told that stages take of a GPU's memory; by default what the
        engines measured.
    admission : AdmissionConfig, optional
        Limits of what is let in.
    Examples
    --------
    >>> from elastic_dit.events import EngineJoined, RequestAccepted
    >>> from elastic_dit.request import Stage
    >>> controller = Controller(ControlConfig())
    >>> request = GenerationRequest.parse(
    ...     request_id="r1", model="m", prompt="p", width=64, height=64, num_frames=1, fps=8,
    ...     num_inference_steps=4, guidance_scale=1.0, seed=0)
    >>> controller.handle(RequestAccepted(request=request), now=0.0)
    []
    >>> joined = EngineJoined(gpu=0, name="w0", node="n0", kind="cpu", memory_bytes=0,
    ...                       resident=frozenset({("m", Stage.ENCODER)}))
    >>> [start] = controller.handle(joined, now=1.0)
    >>> start.stage, start.gpus, start.reason
    (<Stage.ENCODER: 'encoder'>, (0,), 'first in line')
    """

    def __init__(
        self,
        config: ControlConfig,
        dispatch: DispatchPolicy | None = None,
        *,
        times: StageTimes | None = None,
        observed: ObservedTimes | None = None,
    ) -> None:
        self.config = config
        self.dispatch = dispatch or make_dispatch(config.dispatch)
        self.decisions = DecisionLog(config.decisions_kept)
        self.observed = observed or ObservedTimes()
        self.pool = GpuPool(config.prefetch_depth)
        weigh = getattr(self.dispatch, "weigh", None)
        self.table = RequestTable(
            config.finished_kept, self.dispatch.order, weigh, config.max_image_bytes
        )
        memory: MemoryModel | None = None,
        admission: AdmissionConfig | None = None,
        self.groups = GroupTable(self.pool)
        self.allowed = AllowedTimes(times or self.observed, self.table)
        self.view = ClusterView(self.table, self.pool, self.groups, self.allowed, config)
        self._out: list[events.Command] = []
        emit = self._out.append
        self._admission = Admission(
            config,
            admission or AdmissionConfig(),
            table=self.table,
            pool=self.pool,
            times=self.allowed,
        )
        self._residency = Residency(self.pool, emit)
        self._orders = Orders(self.table, self.pool, self.groups, self.decisions, emit)
        self._life = Lifecycle(
            config,
            table=self.table,
            pool=self.pool,
            groups=self.groups,
            times=self.observed,
            admission=self._admission,
            orders=self._orders,
            emit=emit,
        )
        watches_steps = getattr(self.dispatch, "watches_steps", True)
        self._reports = GroupReports(self.groups, self._life, self._orders, watches_steps)
        self._planner = Planner(
            self.dispatch, self.view, self.table, self._orders, self.decisions, self.allowed
        )
        self._handlers: dict[type, _Handler] = {
            events.RequestAccepted: self._request_accepted,
            events.CancelRequested: self._cancel_requested,
            events.EngineJoined: self._engine_joined,
            events.EngineLost: self._engine_lost,
            events.StageLoaded: self._stage_loaded,
            events.StageDropped: self._stage_dropped,
            events.StageLoadFailed: self._stage_load_failed,
            events.MembersLost: self._members_lost,
            **self._reports.handlers,
            events.ResultLost: self._result_lost,
            events.PlanPublished: self._plan_published,
            events.Tick: self._tick,
        }

    def __repr__(self) -> str:
        return f"<Controller {self.dispatch!r} {self.table!r} {self.pool!r}>"

    # ------------------------------------------------------------------------------ its face
    def admit(
        self,
        request: GenerationRequest,
        now: float,
        owner: str = "",
        dops: tuple[int, ...] | None = None,
    ) -> bool:
        """Let a request in before `RequestAccepted` is handled: see `Admission.admit`."""
        return self._admission.admit(request, now, owner, dops)

    def forget(self, request_id: str) -> None:
        """Forget a request that has ended: its id may be used anew. A live one is kept."""
        self.table.forget(request_id)

    def handle(self, event: events.Event, now: float) -> list[events.Command]:
        """Take note of an event and decide.

        Stale and repeated events change nothing and give no commands, except that what a stale
        message says was made is released.

        Parameters
        ----------
        event : Event
        now : float
            Seconds on any clock that does not go back.

        Returns
        -------
        list of Command
            To be carried out in order.
        """
        self._out.clear()
        due = self.table.end_holds(now)
        if self._handlers[type(event)](event, now) or due:
            self._planner.plan(now)
            self._give_back_nodes(now)
        return list(self._out)

    def progress(self, request_id: str, now: float, at: float = 0.0) -> Progress | None:
        """What a client sees of its request; None where it is not known (any more).

        Parameters
        ----------
        request_id : str
        now : float
            Seconds on the controller's clock.
        at : float
            Wall-clock seconds to put on the report.
        """
        record = self.table.get(request_id)
        if record is None:
            return None
        return progress_of(record, self.table, self.pool, self.observed, now, at)

    def snapshot(self, now: float) -> ClusterSnapshot:
        """A copy of the cluster's state, for placement policies and onlookers."""
        return take_snapshot(self.table, self.pool, self.groups, self._residency, now)

    @property
    def refused(self) -> int:
        """Actions of the dispatch policy that could not be carried out: a mistake in it."""
        return self._planner.refused

    def take_changed(self) -> tuple[str, ...]:
        """Ids of requests whose progress changed since the last call."""
        changed = tuple(self._orders.changed)
        self._orders.changed.clear()
        return changed

    def check(self) -> None:
        """Check what must hold between two events; for tests.

        Raises
        ------
        AssertionError
            Naming what is wrong.
        """
        check_invariants(self.table, self.pool, self.groups)

    @property
    def plan(self) -> PlacementPlan:
        """The placement plan in force."""
        return self._residency.plan

    # ------------------------------------------------------------------------------ requests
    def _request_accepted(self, event: events.RequestAccepted, now: float) -> bool:
        if self.table.get(event.request.request_id) is not None:
            return False
        self._life.accept(event, now)
        self._meter.accepted(event.request, now)
        return True

    def _cancel_requested(self, event: events.CancelRequested, now: float) -> bool:
        record = self.table.live.get(event.request_id)
        if record is None:
            return False
        self._life.cancel(record, event.reason, now)
        return True

    def _result_lost(self, event: events.ResultLost, now: float) -> bool:
        record = self.table.finished.get(event.request_id)
        if record is None or record.result is None:
            return False
        self._life.result_lost(record, now)
        return True

    # ------------------------------------------------------------------------------- engines
    def _engine_joined(self, event: events.EngineJoined, now: float) -> bool:
        known = self.pool.get(event.gpu)
        if known is not None and known.name == event.name:
            return False
        if known is not None:
            self._lose_engine(event.gpu, f"replaced by {event.name}", now)
        gpu = Gpu(
            gpu=event.gpu,
            name=event.name,
            node=event.node,
            kind=event.kind,
            memory_bytes=event.memory_bytes,
            joined_at=now,
            resident={StageKey(model, stage) for model, stage in event.resident},
        )
        self.pool.add(gpu)
        self._residency.joined(gpu)
        self.decisions.add(now, "join", event.name, (event.gpu,), f"{event.kind} on {event.node}")
        return True

    def _engine_lost(self, event: events.EngineLost, now: float) -> bool:
        if event.gpu not in self.pool:
            return False
        self._lose_engine(event.gpu, event.reason, now)
        return True

    def _members_lost(self, event: events.MembersLost, now: float) -> bool:
        group = self.groups.find(event.request_id, event.attempt, event.epoch)
        lost = group.held.intersection(event.gpus) if group is not None else ()
        for gpu in sorted(lost):
            self._lose_engine(gpu, event.reason, now)
            self._out.append(events.RestartEngine(gpu=gpu, reason=event.reason))
        return bool(lost)

    def _lose_engine(self, gpu: int, reason: str, now: float) -> None:
        self.decisions.add(now, "lost", self.pool[gpu].name, (gpu,), reason)
        self._life.engine_lost(gpu, reason, now)

    def _stage_loaded(self, event: events.StageLoaded, now: float) -> bool:
        gpu = self.pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        self._residency.loaded(gpu, key)
        self.decisions.add(now, "load", stage_name(key), (gpu.gpu,), f"took {event.seconds:.2f} s")
        return True

    def _stage_dropped(self, event: events.StageDropped, now: float) -> bool:
        gpu = self.pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        self._residency.dropped(gpu, key)
        self.decisions.add(now, "drop", stage_name(key), (gpu.gpu,), self.plan.reason)
        return True

    def _stage_load_failed(self, event: events.StageLoadFailed, now: float) -> bool:
        gpu = self.pool.get(event.gpu)
        if gpu is None:
            return False
        key = StageKey(event.model, event.stage)
        self._residency.load_failed(gpu, key, event.message)
        self.decisions.add(now, "load failed", stage_name(key), (gpu.gpu,), event.message)
        self._fail_hopeless(now)
        return True

    def _plan_published(self, event: events.PlanPublished, now: float) -> bool:
        if not self._residency.publish(event.plan):
            return False
        self.decisions.add(now, "plan", f"epoch {event.plan.epoch}", (), event.plan.reason)
        return True

    # -------------------------------------------------------------------------------- deciding
    def _tick(self, event: events.Tick, now: float) -> bool:  # noqa: ARG002
        self._fail_hopeless(now)
        return True

    def _fail_hopeless(self, now: float) -> None:
        """Fail what waits for a stage that no GPU could load."""
        for key, queue in self.table.queues.items():
            if not len(queue):
                continue
            cause = self._residency.hopeless(key, now, self.config.load_grace_s)
            if cause is None:
                continue
            failure = Failure(error_type="ModelLoadError", message=cause, stage=key.stage)
            for record in list(queue):
                self._life.fail_waiting(record, failure, now)

    def _give_back_nodes(self, now: float) -> None:
        for node in self._residency.given_back(lambda gpu: bool(self.table.held_on(gpu))):
            self.decisions.add(now, "release node", node, (), self.plan.reason)
