"""A world of engines that obey commands in any order and time, and check each of them.

It is the adversary of the controller: messages overtake one another and come twice, engines die
and come back, stages fail, clients change their minds. What it asserts is what an engine may
rely on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller, actions
from elastic_dit.control.dispatch import STAGE_ORDER, DispatchPolicy, nearest_gpu, prefetches
from elastic_dit.control.groups import GroupState
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, GpuId, PlacementPlan

from .bench import make_request

Choose = Callable[[int], int]
"""Gives a number below the given one."""

MODELS = ("m", "n")
KEYS = frozenset(StageKey(model, stage) for model in MODELS for stage in Stage)


class Restless:
    """A policy that starts on one to four GPUs, and resizes and preempts for no reason."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.calm = False

    def __repr__(self) -> str:
        return "Restless()"

    def order(self, request: RequestView) -> tuple[object, ...]:
        return (-request.request.priority,)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        for stage in STAGE_ORDER:
            yield from self._starts(view, stage)
        yield from prefetches(view)
        if not self.calm:
            yield from self._moves(view)

    def _starts(self, view: ClusterView, stage: Stage) -> Iterator[actions.Action]:
        for key in [key for key, _ in view.queues(stage)]:
            while (queue := view.queue(key)) and queue.head and (free := view.free(key)):
                first = nearest_gpu(view, queue.head)
                assert first is not None
                more = 0 if self.calm else self._random.choice((0, 0, 1, 3))
                others = [gpu for gpu in free if gpu != first][:more]
                yield actions.Start(queue.head.request_id, (first, *others), "restless")

    def _moves(self, view: ClusterView) -> Iterator[actions.Action]:
        for group in list(view.running(Stage.DIT)):
            if group.state is not GroupState.RUNNING:
                continue
            dice = self._random.random()
            if dice < 0.05:
                yield actions.Preempt(group.request_id, "restless")
            elif dice < 0.15 and view.free(group.key):
                joiner = view.free(group.key)[0]
                yield actions.Resize(group.request_id, (*group.gpus, joiner), "restless")
            elif dice < 0.25 and group.dop > 1:
                kept = self._random.randrange(1, group.dop)
                yield actions.Resize(group.request_id, group.gpus[-kept:], "restless")


@dataclass
class Work:
    """What a group of engines does."""

    start: events.StartStage
    epoch: int
    gpus: tuple[GpuId, ...]
    step: int = 0
    resize: events.Resize | None = None
    preempt: bool = False
    abort: bool = False
    starved: bool = False
    members: set[GpuId] = field(default_factory=set)

    @property
    def fence(self) -> dict[str, Any]:
        return {
            "request_id": self.start.request.request_id,
            "attempt": self.start.attempt,
            "epoch": self.epoch,
        }

    @property
    def key(self) -> StageKey:
        return StageKey(self.start.request.model, self.start.stage)

    @property
    def occupied(self) -> set[GpuId]:
        return set(self.gpus) | set(self.resize.gpus if self.resize else ())


@dataclass
class Engine:
    """One engine: what it holds and is told to load or drop."""

    resident: set[StageKey] = field(default_factory=set)
    orders: list[events.LoadStage | events.DropStage] = field(default_factory=list)


class Storm:
    """The world around one controller."""

    def __init__(
        self, choose: Choose, dispatch: DispatchPolicy | None = None, **config: Any
    ) -> None:
        settings = {"finished_kept": 10_000, "checkpoint_every": 1, **config}
        self.controller = Controller(ControlConfig(**settings), dispatch)
        self.choose = choose
        self.now = 0.0
        self.engines: dict[GpuId, Engine] = {}
        self.work: list[Work] = []
        self.joining: dict[tuple[str, int, int], set[GpuId]] = {}
        self.ended: dict[tuple[str, int], set[GpuId]] = {}
        self.outbox: list[tuple[events.Event, bool]] = []
        self.past: list[events.Event] = []
        self.accepted: dict[str, int] = {}
        self.terminal: Counter[str] = Counter()
        self.made: set[ArtifactRef] = set()
        self.results: set[ArtifactRef] = set()
        self.released: Counter[ArtifactRef] = Counter()
        self.log: list[str] = []
        self.epoch = 0
        self.serial = 0
        self.copies = self.resumed = 0
        self.obey: dict[type, Callable[[Any], None]] = {
            events.StartStage: self.on_start_stage,
            events.Resize: self.on_resize,
            events.Preempt: self.on_preempt,
            events.Abort: self.on_abort,
            events.Release: self.on_release,
            events.Prefetch: self.on_prefetch,
            events.Replicate: self.on_replicate,
            events.Complete: self.on_complete,
            events.Fail: self.on_fail,
            events.Cancelled: self.on_cancelled,
            events.LoadStage: self.on_load_stage,
            events.DropStage: self.on_drop_stage,
            events.AskNodes: self.on_ask_nodes,
            events.RestartEngine: self.on_restart_engine,
            events.ReleaseNode: self.on_release_node,
        }

    # ------------------------------------------------------------------------------ commands
    def handle(self, event: events.Event) -> None:
        self.now += 0.25
        commands = self.controller.handle(event, self.now)
        self.log += [f"{self.now} {event}", *map(str, commands)]
        self.controller.check()
        assert self.controller.refused == 0, list(self.controller.decisions)[-1]
        for command in commands:
            self.obey[type(command)](command)

    def on_start_stage(self, command: events.StartStage) -> None:
        work = Work(command, command.epoch, command.gpus)
        busy = self.occupied()
        for gpu in command.gpus:
            assert gpu not in busy, (command, self.work)
            engine = self.engines[gpu]
            assert work.key in engine.resident, (command, engine)
            assert not engine.orders, (command, engine)
        for ref in command.inputs:
            assert ref.gpu in self.engines, (command, "its holder is gone")
            assert not self.released[ref], (command, "released before")
            work.step = ref.step
            self.resumed += bool(ref.step and command.attempt > 1)
            # An engine may have died and come back between telling of an output and now.
            work.starved = ref not in self.made
        assert command.stage is Stage.ENCODER or command.inputs, command
        self.work.append(work)

    def on_resize(self, command: events.Resize) -> None:
        work = self.find(command.request_id, command.attempt)
        if work is None:
            # It ended meanwhile: its members know that, those that were to join do not.
            self.join_in_vain(command, self.ended.get((command.request_id, command.attempt), set()))
            return
        busy = self.occupied() - work.occupied
        assert not busy & set(command.gpus), (command, self.work)
        assert command.epoch > work.epoch
        work.resize = command

    def on_preempt(self, command: events.Preempt) -> None:
        work = self.find(command.request_id, command.attempt)
        if work is not None and work.epoch == command.epoch:
            work.preempt = True

    def on_abort(self, command: events.Abort) -> None:
        fence = (command.request_id, command.attempt, command.epoch)
        if fence in self.joining:
            self.joining[fence] &= self.engines.keys()
            self.send(events.StageAborted(request_id=fence[0], attempt=fence[1], epoch=fence[2]))
            del self.joining[fence]
            return
        work = self.find(command.request_id, command.attempt)
        if work is None:
            self.send(events.StageAborted(request_id=fence[0], attempt=fence[1], epoch=fence[2]))
        else:
            assert set(command.gpus) & work.occupied, (command, work)
            work.abort = True

    def on_release(self, command: events.Release) -> None:
        self.released[command.artifact] += 1
        assert command.artifact.gpu in self.engines, command
        assert self.released[command.artifact] == 1, command
        assert command.artifact not in self.results, command

    def on_prefetch(self, command: events.Prefetch) -> None:
        assert command.inputs
        for ref in command.inputs:
            assert ref.gpu in self.engines, command
            assert ref.gpu != command.gpu, command
            assert not self.released[ref], command
            del self.released[replace(ref, gpu=command.gpu)]

    def on_replicate(self, command: events.Replicate) -> None:
        source, copy = command.artifact, replace(command.artifact, gpu=command.gpu)
        assert command.gpu in self.engines, command
        assert source.gpu in self.engines, command
        assert source.gpu != command.gpu, command
        assert not self.released[source], command
        assert not self.released[copy], command
        arrives = source in self.made and self.choose(4)
        if arrives:
            self.made.add(copy)
        self.copies += 1
        self.send(events.ArtifactCopied(copy=copy, failure="" if arrives else "lost on its way"))

    def on_complete(self, command: events.Complete) -> None:
        self.terminal[command.request_id] += 1
        self.results.add(command.result)

    def on_fail(self, command: events.Fail) -> None:
        self.terminal[command.request_id] += 1

    def on_cancelled(self, command: events.Cancelled) -> None:
        self.terminal[command.request_id] += 1

    def on_load_stage(self, command: events.LoadStage) -> None:
        engine = self.engines[command.gpu]
        assert StageKey(command.model, command.stage) not in engine.resident, command
        engine.orders.append(command)

    def on_drop_stage(self, command: events.DropStage) -> None:
        key = StageKey(command.model, command.stage)
        assert key in self.engines[command.gpu].resident, command
        users = [w for w in self.work if command.gpu in w.occupied and w.key == key]
        assert not users, (command, users)
        self.engines[command.gpu].orders.append(command)

    def on_ask_nodes(self, command: events.AskNodes) -> None:
        assert command.count > 0

    def on_restart_engine(self, command: events.RestartEngine) -> None:
        assert command.gpu not in self.controller.pool
        self.vanish(command.gpu)

    def on_release_node(self, command: events.ReleaseNode) -> None:
        gpus = [gpu for gpu in self.engines if node_of(gpu) == command.node]
        for gpu in gpus:
            assert not self.engines[gpu].resident
            assert gpu not in self.occupied()

    # ----------------------------------------------------------------------------- the world
    def occupied(self) -> set[GpuId]:
        return set().union(*(w.occupied for w in self.work), *self.joining.values())

    def find(self, request_id: str, attempt: int) -> Work | None:
        for work in self.work:
            if work.start.request.request_id == request_id and work.start.attempt == attempt:
                return work
        return None

    def send(self, event: events.Event, fenced: bool = True) -> None:
        self.outbox.append((event, fenced))

    def deliver(self, which: int) -> None:
        event, fenced = self.outbox.pop(which % len(self.outbox))
        if fenced:
            self.past.append(event)
        self.handle(event)

    def submit(self, model: str, priority: int = 0, again: bool = False) -> None:
        if again and self.accepted:
            names = sorted(self.accepted)
            request_id = names[self.choose(len(names))]
            known = self.controller.table.get(request_id)
            assert known is not None
            assert not self.controller.admit(known.request, self.now)
            self.handle(events.RequestAccepted(request=known.request))
            return
        self.serial += 1
        request_id = f"r{self.serial}"
        request = make_request(
            request_id, model=model, priority=priority, num_inference_steps=1 + self.serial % 4
        )
        self.accepted[request_id] = 1
        self.handle(events.RequestAccepted(request=request))

    def cancel(self) -> None:
        names = sorted(self.accepted)
        if names:
            name = names[self.choose(len(names))]
            self.handle(events.CancelRequested(request_id=name, reason="bored"))

    def lose_result(self) -> None:
        names = sorted(self.accepted)
        if names:
            name = names[self.choose(len(names))]
            record = self.controller.table.finished.get(name)
            if record is not None and record.result is not None:
                self.accepted[name] += 1
                self.results.discard(record.result)
            self.handle(events.ResultLost(request_id=name))

    def join(self, gpu: GpuId, resident: frozenset[StageKey]) -> None:
        if gpu in self.engines:
            resident = frozenset(self.engines[gpu].resident)
        else:
            self.engines[gpu] = Engine(resident=set(resident))
        self.handle(
            events.EngineJoined(
                gpu=gpu,
                name=f"w{gpu}",
                node=node_of(gpu),
                kind="virtual",
                memory_bytes=0,
                resident=frozenset((key.model, key.stage) for key in resident),
            )
        )

    def lose(self, gpu: GpuId) -> None:
        if gpu in self.engines:
            self.vanish(gpu)
            self.handle(events.EngineLost(gpu=gpu, reason="killed"))

    def vanish(self, gpu: GpuId) -> None:
        del self.engines[gpu]
        self.made = {ref for ref in self.made if ref.gpu != gpu}
        for work in list(self.work):
            if work.resize and gpu in work.resize.gpus and gpu not in work.gpus:
                continue
            if gpu in work.gpus:
                work.gpus = tuple(member for member in work.gpus if member != gpu)
                if not work.gpus:
                    self.end(work)
        for members in self.joining.values():
            members.discard(gpu)
        # What an engine says of its loads dies with it; what it said of stages is fenced.
        self.outbox = [
            (event, fenced)
            for event, fenced in self.outbox
            if fenced or getattr(event, "gpu", None) != gpu
        ]

    def publish(self, residency: dict[GpuId, frozenset[StageKey]], retire: tuple[str, ...]) -> None:
        self.epoch += 1
        self.handle(
            events.PlanPublished(
                plan=PlacementPlan(
                    epoch=self.epoch, residency=residency, retire=retire, reason="storm"
                )
            )
        )

    def answer_order(self, gpu: GpuId, fail: bool) -> None:
        engine = self.engines.get(gpu)
        if engine is None or not engine.orders:
            return
        order = engine.orders.pop(0)
        key = StageKey(order.model, order.stage)
        fields: dict[str, Any] = {"gpu": gpu, "model": order.model, "stage": order.stage}
        if isinstance(order, events.DropStage):
            engine.resident.discard(key)
            self.send(events.StageDropped(**fields), fenced=False)
        elif fail:
            self.send(events.StageLoadFailed(**fields, message="bad weights"), fenced=False)
        else:
            engine.resident.add(key)
            self.send(events.StageLoaded(**fields, seconds=1.0), fenced=False)

    # ------------------------------------------------------------------------ groups at work
    def end(self, work: Work) -> None:
        self.work.remove(work)
        members = work.members | set(work.gpus)
        self.ended[(work.start.request.request_id, work.start.attempt)] = members
        if work.resize is not None:
            self.join_in_vain(work.resize, members)

    def join_in_vain(self, resize: events.Resize, members: set[GpuId]) -> None:
        joiners = (set(resize.gpus) - members) & self.engines.keys()
        if joiners:
            self.joining[(resize.request_id, resize.attempt, resize.epoch)] = joiners

    def give_up_joining(self) -> None:
        """Engines that wait to join a group nobody is left of: every wait is bounded."""
        for request_id, attempt, epoch in self.joining:
            failure = Failure(
                error_type="TimeoutError", message="join", stage=Stage.DIT, retryable=True
            )
            self.send(
                events.StageFailed(
                    request_id=request_id, attempt=attempt, epoch=epoch, failure=failure
                )
            )
        self.joining.clear()

    def output(self, work: Work, step: int = 0) -> ArtifactRef:
        ref = ArtifactRef(
            request_id=work.start.request.request_id,
            attempt=work.start.attempt,
            stage=work.start.stage,
            gpu=work.gpus[0],
            nbytes=1,
            digest=f"{work.start.stage}:{work.epoch}",
            step=step,
        )
        self.made.add(ref)
        return ref

    def advance(self, which: int, fate: str) -> None:
        """One group does its next thing: what it was told, a step, its end, or a mishap."""
        if not self.work:
            return
        work = self.work[which % len(self.work)]
        if fate == "fail":
            self._fail(work)
        elif work.starved or (fate == "inputs" and work.start.inputs):
            self.send(events.InputsLost(**work.fence, message="gone"))
            self.end(work)
        elif work.abort and fate != "late":
            self.send(events.StageAborted(**work.fence))
            work.resize = None  # the order to abort went to those that were to join too
            self.end(work)
        elif work.start.stage is not Stage.DIT:
            self._finish(work)
        else:
            self._boundary(work, late=fate == "late")

    def _fail(self, work: Work) -> None:
        failure = Failure(
            error_type="ValueError",
            message="boom",
            stage=work.start.stage,
            retryable=bool(self.choose(4)),
        )
        self.send(events.StageFailed(**work.fence, failure=failure))
        self.end(work)

    def _boundary(self, work: Work, late: bool) -> None:
        total = work.start.request.num_inference_steps
        if work.step < total:
            work.step += 1
            self.send(events.StepDone(**work.fence, step=work.step))
        if work.step >= total:
            self._finish(work)
        elif work.resize is None and not work.preempt and self.choose(2):
            self.send(events.SnapshotKept(**work.fence, snapshot=self.output(work, work.step)))
        elif not late:
            self._obey(work)

    def _obey(self, work: Work) -> None:
        """Do at a step boundary what was ordered, if all who are needed are alive."""
        resize = work.resize
        if resize is not None and self.engines.keys() >= set(resize.gpus):
            leavers = tuple(gpu for gpu in work.gpus if gpu not in resize.gpus)
            work.gpus, work.epoch, work.resize = resize.gpus, resize.epoch, None
            if leavers:
                self.send(events.GpusFreed(**work.fence, gpus=leavers))
        elif work.preempt and resize is None:
            self.send(events.StagePreempted(**work.fence, snapshot=self.output(work, work.step)))
            self.end(work)

    def _finish(self, work: Work) -> None:
        if len(work.gpus) > 1 and self.choose(2):
            self.send(events.GpusFreed(**work.fence, gpus=work.gpus[1:]))
            work.members = set(work.gpus)
            work.gpus = work.gpus[:1]
        self.send(
            events.StageDone(
                **work.fence, stage=work.start.stage, output=self.output(work), seconds=0.5
            )
        )
        self.end(work)

    # --------------------------------------------------------------------------- afterwards
    def calm_down(self, rounds: int = 2_000) -> None:
        """No more mishaps: everything accepted must end, everything made must be let go."""
        dispatch = self.controller.dispatch
        if isinstance(dispatch, Restless):
            dispatch.calm = True
        self.publish({}, ())
        for gpu in range(20, 24):
            self.join(gpu, KEYS)
        for turn in range(rounds):
            for gpu in list(self.engines):
                self.answer_order(gpu, fail=False)
            if self.work:
                self.advance(turn, "step")
            while self.outbox:
                self.deliver(0)
            self.give_up_joining()
            idle = not self.work and not self.outbox
            if idle and not any(engine.orders for engine in self.engines.values()):
                self.handle(events.Tick())
                if not self.controller.table.live:
                    break
        self.verify_end()

    def verify_end(self) -> None:
        assert not self.controller.table.live, self.controller.table.live
        assert dict(self.terminal) == self.accepted
        assert not self.joining
        for gpu in self.controller.pool:
            assert gpu.group is None, gpu
            assert not gpu.prepared, gpu
        for ref in self.made:
            assert ref in self.results or self.released[ref] == 1, ref


def node_of(gpu: GpuId) -> str:
    return f"node{gpu // 4}"


def next_thing(storm: Storm, dice: random.Random) -> None:
    """One thing that happens in a storm with most things going well."""
    gpu = dice.randrange(8)
    what = dice.choices(*zip(*WEIGHTS.items(), strict=True))[0]
    match what:
        case "submit":
            storm.submit(dice.choice(MODELS), dice.randrange(3))
        case "cancel":
            storm.cancel()
        case "lose":
            storm.lose(gpu)
        case "join":
            storm.join(gpu, KEYS if dice.random() < 0.5 else frozenset())
        case "plan":
            storm.publish({gpu: frozenset(k for k in sorted(KEYS) if dice.random() < 0.8)}, ())
        case "order":
            storm.answer_order(gpu, fail=dice.random() < 0.05)
        case "advance":
            mishap = dice.choice(["late", "fail", "inputs"])
            storm.advance(dice.randrange(1000), "step" if dice.random() < 0.97 else mishap)
        case "repeat" if storm.past:
            storm.handle(dice.choice(storm.past))
        case "deliver" if storm.outbox:
            storm.deliver(dice.randrange(3))


WEIGHTS = {
    "submit": 120,
    "cancel": 20,
    "lose": 10,
    "join": 20,
    "plan": 5,
    "order": 75,
    "advance": 350,
    "repeat": 20,
    "deliver": 380,
}


def run_storm(seed: int, rounds: int, dispatch: DispatchPolicy) -> Storm:
    """A long storm by seed."""
    dice = random.Random(seed)
    storm = Storm(dice.randrange, dispatch, load_grace_s=2.0)
    for gpu in range(6):
        storm.join(gpu, KEYS)
    for _ in range(rounds):
        next_thing(storm, dice)
    storm.calm_down()
    return storm
