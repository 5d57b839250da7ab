"""The virtual cluster: the production controller on a virtual clock."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from elastic_dit import events
from elastic_dit.control import Controller, PlacementPolicy
from elastic_dit.cost import CostModel
from elastic_dit.request import Stage, StageKey
from elastic_dit.simulate.engine import VirtualEngine
from elastic_dit.simulate.outcome import RequestOutcome, SimulationResult
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.runs import Runs
from elastic_dit.simulate.timeline import Span
from elastic_dit.simulate.workload import Arrival
from elastic_dit.state import GpuId, Phase

__all__ = ["VirtualCluster"]


class VirtualCluster:
    """Engines, clients and network as events on a heap, deterministic by seed.

    Parameters
    ----------
    controller : Controller
        A fresh one; the same class that runs in production.
    cost : CostModel
        Durations of stages.
    overheads : Overheads, optional
        Everything else that takes time.
    placement : PlacementPolicy, optional
        Asked at once and every `placement_interval_s`; without one, engines keep the stages
        they join with.
    placement_interval_s : float
    seed : int
        Of the jitter.

    Attributes
    ----------
    when_ended : callable or None
        Told the id of every request that ends.

    Examples
    --------
    >>> from elastic_dit.config import ControlConfig
    >>> from elastic_dit.cost import read_stage_latencies
    >>> from elastic_dit.simulate.ddit_grid import Cell
    >>> cluster = VirtualCluster(Controller(ControlConfig()), read_stage_latencies())
    >>> cluster.add_node("n0", gpus=8, models=["opensora-1.2"])
    >>> cluster.submit(Cell((1, 1, 1), None).arrivals(seed=0, count=9))
    >>> result = cluster.run()
    >>> result.summary()["completed"]
    9
    """

    def __init__(
        self,
        controller: Controller,
        cost: CostModel,
        *,
        overheads: Overheads | None = None,
        placement: PlacementPolicy | None = None,
        placement_interval_s: float = 2.0,
        seed: int = 0,
    ) -> None:
        self.controller = controller
        self.now = 0.0
        self.engines: dict[GpuId, VirtualEngine] = {}
        self.spans: list[Span] = []
        self.num_events = 0
        self._overheads = overheads or Overheads()
        self._placement = placement
        self._placement_interval_s = placement_interval_s
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._last_at = 0.0
        self._awaited = 0
        self._handle = controller.handle
        self._arrivals: dict[str, Arrival] = {}
        self._ended: dict[str, RequestOutcome] = {}
        self._nodes: dict[GpuId, str] = {}
        self._blocks = 0
        self._alive_s: dict[GpuId, float] = {}
        self._template: dict[str, Any] = {}
        self._asked = 0
        self._looks = (self._tick, self._place)
        self.when_ended: Callable[[str], None] | None = None
        self._runs = Runs(self, cost, self._overheads, random.Random(seed))
        self._obey: dict[type, Callable[[Any], None]] = {
            events.StartStage: self._runs.start,
            events.Prefetch: self._runs.prefetch,
            events.Resize: self._runs.resize,
            events.Preempt: self._runs.preempt,
            events.Abort: self._runs.abort,
            events.Release: self._runs.release,
            events.Complete: self._complete,
            events.Fail: self._fail,
            events.Cancelled: self._cancelled,
            events.LoadStage: self._order,
            events.DropStage: self._order,
            events.AskNodes: self._ask_nodes,
            events.ReleaseNode: self._release_node,
        }

    def __repr__(self) -> str:
        return f"<VirtualCluster {len(self.engines)} GPUs at {self.now:.3f} s>"

    # ------------------------------------------------------------------------- what happens
    def add_node(
        self,
        name: str,
        *,
        gpus: int,
        models: Iterable[str] = (),
        kind: str = "",
        memory_bytes: int = 0,
        at_s: float = 0.0,
    ) -> None:
        """A machine joins.

        Parameters
        ----------
        name : str
        gpus : int
            Its GPUs; their numbers follow the last taken block of `slots_per_node`. As in a real
            cluster a machine with more of them has several blocks, and no group spans two.
        models : iterable of str
            Models of which its GPUs hold all stages from the start.
        kind : str
            GPU kind, for the cost model; empty for the one it was made for.
        memory_bytes : int
            Of one GPU.
        at_s : float
        """
        slots = self.controller.config.slots_per_node
        first = self._blocks * slots
        self._blocks += math.ceil(gpus / slots)
        self._template = {
            "gpus": gpus,
            "models": tuple(models),
            "kind": kind,
            "memory_bytes": memory_bytes,
        }
        resident = frozenset(
            StageKey(model, stage) for model in self._template["models"] for stage in Stage
        )
        for gpu in range(first, first + gpus):
            self._nodes[gpu] = name
            engine = VirtualEngine(
                gpu=gpu, node=name, kind=kind, joined_at=at_s, resident=set(resident)
            )
            self.at(at_s, self._join, engine, memory_bytes)

    def submit(self, arrivals: Iterable[Arrival]) -> None:
        """Requests arrive at their times."""
        for arrival in arrivals:
            self._arrivals[arrival.request.request_id] = arrival
            self._awaited += 1
            self.at(arrival.at_s, self.tell, events.RequestAccepted(request=arrival.request))

    def cancel(self, request_id: str, at_s: float) -> None:
        """A client cancels."""
        event = events.CancelRequested(request_id=request_id, reason="cancelled by its client")
        self.at(at_s, self.tell, event)

    def lose(self, gpu: GpuId, at_s: float, reason: str = "killed") -> None:
        """A GPU dies."""
        self.at(at_s, self._die, gpu, reason)

    def run(self, until_s: float | None = None) -> SimulationResult:
        """Let time go by until every request has ended and all is still, or until a moment."""
        for look in self._looks[: 1 if self._placement is None else 2]:
            self.at(0.0, look)
        heap, pop, looks = self._heap, heapq.heappop, self._looks
        end_s = math.inf if until_s is None else until_s
        while heap and heap[0][0] <= end_s:
            self.now, _, what, args = pop(heap)
            if what not in looks:
                self._last_at = self.now
            what(*args)
        return self._result()

    # ---------------------------------------------------------------------------- machinery
    def at(self, when: float, what: Callable[..., None], *args: Any) -> None:
        """Schedule something; what is scheduled first at one moment happens first."""
        self._serial += 1
        heapq.heappush(self._heap, (when, self._serial, what, args))

    def tell(self, event: events.Event) -> None:
        """Let the controller handle an event now, and obey it."""
        self.num_events += 1
        for command in self._handle(event, self.now):
            self._obey[type(command)](command)

    def busy(
        self, gpus: Iterable[GpuId], since: float, what: str, subject: str, **detail: Any
    ) -> None:
        """Note what some GPUs did together until now."""
        if self.now > since:
            self.spans += [Span(gpu, since, self.now, what, subject, detail) for gpu in gpus]

    def idle(self, engine: VirtualEngine) -> None:
        """An engine's thread is free: loads and drops that waited for it go on."""
        if engine.run is None and engine.orders:
            self._carry_out(engine)

    def _again(self, after_s: float, what: Callable[[], None]) -> None:
        """Let a periodic look come again, unless nothing but such looks will ever happen."""
        heap, looks = self._heap, self._looks
        if len(heap) <= len(looks) and all(entry[2] in looks for entry in heap):
            patience_s = self._placement_interval_s + self.controller.config.load_grace_s
            if len(self._ended) >= self._awaited or self.now - self._last_at > 2 * patience_s:
                return
        self.at(self.now + after_s, what)

    def _tick(self) -> None:
        self.tell(events.Tick())
        self._again(self.controller.config.tick_s, self._tick)

    def _place(self) -> None:
        assert self._placement is not None
        plan = self._placement.plan(self.controller.snapshot(self.now), self.now)
        if plan is not None:
            self.tell(events.PlanPublished(plan=plan))
        self._again(self._placement_interval_s, self._place)

    # ------------------------------------------------------------------------------ engines
    def _join(self, engine: VirtualEngine, memory_bytes: int) -> None:
        self.engines[engine.gpu] = engine
        self.tell(
            events.EngineJoined(
                gpu=engine.gpu,
                name=f"gpu-{engine.gpu}-{engine.joined_at:g}",
                node=engine.node,
                kind=engine.kind,
                memory_bytes=memory_bytes,
                resident=frozenset(engine.resident),
            )
        )

    def _die(self, gpu: GpuId, reason: str) -> None:
        engine = self.engines.pop(gpu, None)
        if engine is None:
            return
        self._alive_s[gpu] = self._alive_s.get(gpu, 0.0) + self.now - engine.joined_at
        if engine.run is not None:
            self._runs.member_died(engine.run, gpu)
        lost = events.EngineLost(gpu=gpu, reason=reason)
        self.at(self.now + self._overheads.detect_s, self.tell, lost)

    def _order(self, command: events.LoadStage | events.DropStage) -> None:
        engine = self.engines.get(command.gpu)
        if engine is not None:
            engine.orders.append(command)
            if len(engine.orders) == 1:
                self.idle(engine)

    def _carry_out(self, engine: VirtualEngine) -> None:
        order = engine.orders[0]
        loads = isinstance(order, events.LoadStage)
        seconds = self._overheads.stage_load(order.stage) if loads else self._overheads.drop_s
        self.at(self.now + seconds, self._carried_out, engine, seconds)

    def _carried_out(self, engine: VirtualEngine, seconds: float) -> None:
        if self.engines.get(engine.gpu) is not engine:
            return
        order = engine.orders[0]  # stays till all is told: what is ordered meanwhile waits for it
        key = StageKey(order.model, order.stage)
        where: dict[str, Any] = {"gpu": engine.gpu, "model": key.model, "stage": key.stage}
        what = "load" if isinstance(order, events.LoadStage) else "drop"
        self.busy((engine.gpu,), self.now - seconds, what, f"{key.model}/{key.stage}")
        if what == "load":
            engine.resident.add(key)
            self.tell(events.StageLoaded(**where, seconds=seconds))
        else:
            engine.resident.discard(key)
            self.tell(events.StageDropped(**where))
        engine.orders.pop(0)
        self.idle(engine)

    def _ask_nodes(self, command: events.AskNodes) -> None:
        there = len({engine.node for engine in self.engines.values()})
        for _ in range(there + self._asked, command.count):
            self._asked += 1
            self.at(self.now + self._overheads.provision_s, self._provide)

    def _provide(self) -> None:
        self._asked -= 1
        name = f"added-{len(set(self._nodes.values()))}"
        self.add_node(name, **{**self._template, "models": ()}, at_s=self.now)

    def _release_node(self, command: events.ReleaseNode) -> None:
        for gpu in [gpu for gpu, e in self.engines.items() if e.node == command.node]:
            self.at(self.now, self._die, gpu, "given back")

    # --------------------------------------------------------------------------------- ends
    def _complete(self, command: events.Complete) -> None:
        self._end(command.request_id)

    def _fail(self, command: events.Fail) -> None:
        self._end(command.request_id, str(command.failure))

    def _cancelled(self, command: events.Cancelled) -> None:
        self._end(command.request_id, command.reason)

    def _end(self, request_id: str, error: str = "") -> None:
        self._ended[request_id] = self._outcome(self._arrivals[request_id], self.now, error)
        if self.when_ended is not None:
            self.when_ended(request_id)

    def _result(self) -> SimulationResult:
        alive = dict(self._alive_s)
        for gpu, engine in self.engines.items():
            alive[gpu] = alive.get(gpu, 0.0) + self.now - engine.joined_at
        return SimulationResult(
            requests=tuple(
                self._ended.get(request_id) or self._outcome(arrival)
                for request_id, arrival in self._arrivals.items()
            ),
            spans=tuple(self.spans),
            nodes=dict(self._nodes),
            alive_s=alive,
            ended_at=self._last_at,
            num_events=self.num_events,
        )

    def _outcome(
        self, arrival: Arrival, ended_at: float | None = None, error: str = ""
    ) -> RequestOutcome:
        record = self.controller.table.get(arrival.request.request_id)
        return RequestOutcome(
            request_id=arrival.request.request_id,
            label=arrival.label,
            arrived_at=arrival.at_s,
            ended_at=ended_at,
            phase=record.phase if record else Phase.QUEUED,
            attempts=record.attempt if record else 1,
            deadline_s=arrival.request.deadline_s,
            records=tuple(record.records) if record else (),
            error=error,
        )
