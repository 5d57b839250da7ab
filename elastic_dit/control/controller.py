"""The controller: events in, commands out, and nothing else.

It reads no clock, does no I/O, draws no random number: the same events give the same commands,
in production (`elastic_dit.cluster`) as in simulation (`elastic_dit.simulate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_dit import events
from elastic_dit.config import AdmissionConfig, ControlConfig, PlacementConfig
from elastic_dit.control.admission import Admission
from elastic_dit.control.decisions import DecisionLog
from elastic_dit.control.departures import Departures
from elastic_dit.control.dispatch import DispatchPolicy, make_dispatch
from elastic_dit.control.engine_reports import EngineReports
from elastic_dit.control.evacuation import Evacuation
from elastic_dit.control.forced import ForcedDegrees
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.group_reports import GroupReports
from elastic_dit.control.groups import GroupTable
from elastic_dit.control.invariants import check_invariants
from elastic_dit.control.lifecycle import Lifecycle
from elastic_dit.control.meter import Meter
from elastic_dit.control.observe import Observer
from elastic_dit.control.orders import Orders
from elastic_dit.control.planner import Planner
from elastic_dit.control.progress import ObservedTimes, progress_of
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.residency import Residency
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.control.step_watch import StepWatch
from elastic_dit.control.times import AllowedTimes, ExpectedTimes, KnownTimes
from elastic_dit.control.view import ClusterView, StageTimes
from elastic_dit.cost import MemoryModel
from elastic_dit.request import GenerationRequest, StageKey
from elastic_dit.state import PlacementPlan, Progress

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
    memory : MemoryModel, optional
        What placement policies are told that stages take of a GPU's memory; by default what the
        engines measured.
    admission : AdmissionConfig, optional
        Limits of what is let in.

    Attributes
    ----------
    allowed : AllowedTimes
        Limits the degrees of parallelism; ``allowed.widest`` may be changed at any time.
    forced : ForcedDegrees
        Where requests are announced that shall run at a given degree.

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
        memory: MemoryModel | None = None,
        admission: AdmissionConfig | None = None,
        action_timeout_s: float = PlacementConfig().action_timeout_s,
    ) -> None:
        self.config = config
        self._meter = Meter(config.window_s, config.arrivals_kept)
        self.dispatch = dispatch or make_dispatch(config.dispatch)
        self.decisions = DecisionLog(config.decisions_kept)
        self.observed = observed or ObservedTimes()
        self.pool = GpuPool(config.prefetch_depth, config.window_s)
        weigh = getattr(self.dispatch, "weigh", None)
        self.table = RequestTable(
            config.finished_kept, self.dispatch.order, weigh, config.max_image_bytes
        )
        self.groups = GroupTable(self.pool)
        self.allowed = AllowedTimes(times or self.observed, self.table)
        # Without guesses: they are good enough to rank by, not to promise.
        self._known = (
            times.known if isinstance(times, ExpectedTimes) else KnownTimes(self.observed, times)
        )
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
        self._observer = Observer(
            table=self.table,
            pool=self.pool,
            groups=self.groups,
            residency=self._residency,
            meter=self._meter,
            times=self.allowed,
            memory=memory,
        )
        self._orders = Orders(self.table, self.pool, self.groups, self.decisions, self._meter, emit)
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
        self._watches_clock = getattr(self.dispatch, "watches_clock", True)
        self._engines = EngineReports(
            table=self.table,
            pool=self.pool,
            groups=self.groups,
            life=self._life,
            residency=self._residency,
            watch=StepWatch(config, self.table, self.groups, self.observed),
            log=self.decisions,
            emit=emit,
            load_grace_s=config.load_grace_s,
            action_timeout_s=action_timeout_s,
        )
        self._evacuation = Evacuation(
            self.table, self.pool, self.groups, self._orders, self.decisions
        )
        self._reports = GroupReports(
            self.groups, self._life, self._orders, self.allowed, watches_steps
        )
        self.forced = ForcedDegrees()
        self._planner = Planner(
            self.dispatch,
            self.view,
            self.table,
            self._orders,
            self.decisions,
            self.allowed,
            self.forced,
        )
        self._handlers: dict[type, _Handler] = {
            events.RequestAccepted: self._request_accepted,
            events.CancelRequested: self._cancel_requested,
            **self._engines.handlers,
            events.StageLoaded: self._stage_loaded,
            **self._reports.handlers,
            events.ResultLost: self._result_lost,
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
            self._empty_machines(now)
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
        return progress_of(record, self.table, self.pool, self._known, now, at)

    def snapshot(self, now: float) -> ClusterSnapshot:
        """A copy of the cluster's state, for placement policies and onlookers."""
        return self._observer.look(now)

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

    @property
    def departures(self) -> Departures:
        """Machines that are to be given back."""
        return self._residency.departures

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

    def _stage_loaded(self, event: events.StageLoaded, now: float) -> bool:
        key = StageKey(event.model, event.stage)
        self._meter.loaded(key, event.seconds, event.nbytes)
        return self._engines.handlers[events.StageLoaded](event, now)

    # -------------------------------------------------------------------------------- deciding
    def _tick(self, event: events.Tick, now: float) -> bool:  # noqa: ARG002
        lost = self._engines.restart_overdue(now)
        failed = self._engines.fail_hopeless(now)
        self._empty_machines(now)
        waits = self._watches_clock or bool(self.forced)
        return lost or failed or waits or self._planner.stopped

    def _empty_machines(self, now: float) -> None:
        """Bring those that are to be given back nearer to their end."""
        departures = self._residency.departures
        if not departures:
            return
        self._evacuation.go(now)
        for node in self._residency.given_back(lambda gpu: bool(self.table.held_on(gpu))):
            gpus = tuple(sorted(self.pool.node(node)))
            self.decisions.add(now, "release machine", node, gpus, departures.reason(node))
