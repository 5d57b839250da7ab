"""After cancels at every moment and jobs that fail, all is back to what it was before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.cluster.worker.transfer import TransferRecord
from elastic_dit.config import Config
from elastic_dit.control import actions
from elastic_dit.control.dispatch import Fcfs, register_dispatch
from elastic_dit.control.groups import GroupState
from elastic_dit.engine.fake import FakeEngine, FakeSeconds, fake_frames
from elastic_dit.engine.fake_group import FakeGroups
from elastic_dit.errors import GenerationCancelled, GenerationFailed, InvalidRequest
from elastic_dit.events import Cancelled, CancelRequested, Complete, Fail, Resize, StartStage
from elastic_dit.request import Stage
from elastic_dit.state import Phase, StageRecord
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, Cluster, connect, serving

pytestmark = pytest.mark.cluster

LIMIT_S = 90.0
REMEMBERED = 8
"""Of whatever is remembered of the latest requests."""
UNDER_WAY = 8
"""Requests at once; as many undisturbed ones fill what is remembered."""
STEPS = 8
CANCELS = 70
JOBS = 40
GROUPED = 24
REFUSED = "refused"
TROUBLES = (
    "fails-in-encoder", "fails-in-dit", "fails-in-decoder", "breaks-dit", "breaks-decoder", REFUSED
)  # fmt: skip
PREEMPTED = "preempted"
MOMENTS = (
    Phase.QUEUED, Phase.ENCODING, Phase.ENCODED, Phase.DENOISING, PREEMPTED, Phase.DENOISED,
    Phase.DECODING, Phase.COMPLETED,
)  # fmt: skip
SECONDS = FakeSeconds(encoder=0.002, step=0.001, decoder=0.008)


class Preempting(Fcfs):
    """First come, first served; who is named so stops once, and goes to the end of the line."""

    watches_steps = True

    def order(self, request: Any) -> tuple[object, ...]:
        return (request.step > 0,)

    def plan(self, view: Any, now: float) -> Iterator[actions.Action]:
        for group in tuple(view.running(Stage.DIT)):
            is_first = not view.requests[group.request_id].records[1:]
            is_running = group.state is GroupState.RUNNING and 0 < group.step < STEPS
            if PREEMPTED in group.request_id and is_first and is_running:
                yield actions.Preempt(group.request_id, "as the test says")
        yield from super().plan(view, now)


register_dispatch("preempting", Preempting)


class Troubled(FakeEngine):
    """Fails in the stage that a request's name says, and knows which of its arrays still live."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._made: list[weakref.ref[Any]] = []

    @property
    def alive(self) -> int:
        return sum(each() is not None for each in self._made)

    def run(self, stage: Stage, request: Any, inputs: Any, context: Any) -> Any:
        fail_if_named(request.request_id, stage)
        output = super().run(stage, request, inputs, context)
        self._note(output.payload)
        return output

    def run_in_group(self, request: Any, inputs: Any, context: Any, seat: Any) -> Any:
        fail_if_named(request.request_id, Stage.DIT)
        outcome = super().run_in_group(request, inputs, context, seat)
        self._note(outcome.payload or {})
        return outcome

    def _note(self, payload: Any) -> None:
        self._made = [each for each in self._made if each() is not None]
        arrays = (each for each in payload.values() if isinstance(each, np.ndarray))
        self._made += map(weakref.ref, arrays)


def fail_if_named(request_id: str, stage: Stage) -> None:
    """Each time another error: one that is raised again would itself keep what it has passed."""
    if f"fails-in-{stage}" in request_id:
        raise ValueError("as the test says")
    if f"breaks-{stage}" in request_id:
        raise OSError("as the test says, however often it is tried")


class Moments:
    """An onlooker that says when a request is where it shall be cancelled, and where it was."""

    def __init__(self) -> None:
        self.at_cancel: Counter[str] = Counter()
        self.grouped = 0
        self._now: dict[str, str] = {}
        self._waits: dict[str, tuple[str, asyncio.Event]] = {}

    def expect(self, request_id: str, moment: str) -> asyncio.Event:
        """Set once the request is there, or is over."""
        self._waits[request_id] = (moment, asyncio.Event())
        return self._waits[request_id][1]

    def note(self, controller: Any, event: Any, commands: Any, now: float) -> None:
        """See `Reactor.onlookers`."""
        if isinstance(event, CancelRequested) and event.request_id in self._now:
            self.at_cancel[self._now[event.request_id]] += 1
        for record in controller.table.live.values():
            self._is(record.request_id, moment_of(record))
        for command in commands:
            self.grouped += isinstance(command, Resize | StartStage) and len(command.gpus) > 1
            if isinstance(command, Complete | Fail | Cancelled):
                self._now.pop(command.request_id, None)
                if command.request_id in self._waits:
                    self._waits.pop(command.request_id)[1].set()

    def _is(self, request_id: str, moment: str) -> None:
        self._now[request_id] = moment
        wanted, reached = self._waits.get(request_id, ("", None))
        if reached is not None and wanted == moment:
            reached.set()


def moment_of(record: Any) -> str:
    stopped = record.phase is Phase.ENCODED and record.snapshot is not None
    return PREEMPTED if stopped else str(record.phase)


class Books:
    """A cluster whose books are to balance."""

    def __init__(self, cluster: Cluster, client: Any, groups: FakeGroups, under_way: int) -> None:
        self.cluster = cluster
        self.client = client
        self.reactor = cluster.control.reactor
        self.moments = Moments()
        self.reactor.onlookers.append(self.moments.note)
        self._groups = groups
        self._line = asyncio.Semaphore(under_way)
        self._rounds = 0

    async def job(self, name: str) -> str:
        """One request; how it ended."""
        async with self._line:
            try:
                future = await self.submit(name)
                result = await future
            except InvalidRequest:
                return REFUSED
            except GenerationFailed:
                return "failed"
            assert np.array_equal(result.frames, fake_frames(result.request))
            return "completed"

    async def cancelled(self, name: str, moment: str) -> bool:
        """One request that is cancelled at a moment; False where it had ended before."""
        async with self._line:
            reached = self.moments.expect(name, moment)
            future = await self.submit(name)
            async with asyncio.timeout(LIMIT_S):
                await reached.wait()
            was_cancelled = await future.cancel()
            assert isinstance(await future.exception(), GenerationCancelled) == was_cancelled
            return was_cancelled

    def submit(self, name: str) -> Any:
        steps = 10_000 if name.startswith(REFUSED) else STEPS
        return self.client.submit(
            "a circle", request_id=name, width=32, height=32, num_frames=1,
            num_inference_steps=steps,
        )  # fmt: skip

    async def undisturbed(self) -> None:
        """Let the latest requests be ones that nothing happened to."""
        self._rounds += 1
        names = [f"undisturbed-{self._rounds}-{number}" for number in range(UNDER_WAY)]
        ends = await asyncio.gather(*(self.job(name) for name in names))
        assert set(ends) == {"completed"}
        await self.balance()

    async def balance(self) -> None:
        """Wait until nothing is left anywhere of any request."""
        await self.cluster.is_clean()
        reactor, controller = self.reactor, self.reactor.controller
        await eventually(lambda: not self.client.dask.futures)
        await eventually(lambda: not list(controller.groups))
        await eventually(lambda: all(gpu.is_idle for gpu in controller.pool))
        await eventually(lambda: not self.cluster.scheduler.task_prefixes)
        assert not controller.table.waiting
        assert not any(controller.table.count_on(gpu.gpu) for gpu in controller.pool)
        assert not len(reactor.feed)
        assert not reactor.checking
        for worker in self.cluster.workers:
            runner = worker.plugins[EnginePlugin.name].runner
            for held in (runner.inbox, runner.desk, runner.groups, runner.host):
                await eventually(lambda held=held: not len(held))
            assert not runner.snapshots.spare
        for request_id in tuple(controller.table.finished):
            controller.table.forget(request_id)  # each remembers as many artifacts as it had
        self._groups._runs.clear()  # fakes know every run that ever was
        for engine in self.cluster.engines:
            await eventually(lambda engine=engine: not engine.alive)

    def holdings(self) -> Counter[str]:
        """Files, threads, tasks and objects of this package in this process."""
        for held in (self.cluster.scheduler, self.client.dask, *self.cluster.workers):
            held.rpc.collect()  # idle connections, which Dask keeps for the next
        gc.collect()
        kinds = Counter(map(type, gc.get_objects()))
        ours = {
            f"{kind.__module__}.{kind.__qualname__}": count
            for kind, count in kinds.items()
            if str(kind.__module__).startswith("elastic_dit.") and not is_history(kind)
        }
        threads = Counter(
            f"thread {each.name.rstrip('0123456789')}" for each in threading.enumerate()
        )
        files, tasks = psutil.Process().num_fds(), len(asyncio.all_tasks())
        return Counter({**ours, **threads, "files": files, "tasks": tasks})

    async def is_as(self, before: Counter[str]) -> None:
        """Nothing is more than it was."""
        grown: Counter[str] = Counter()

        def is_back() -> bool:
            nonlocal grown
            grown = self.holdings() - before
            return not grown

        try:
            await eventually(is_back)
        except AssertionError as error:
            error.add_note(f"more than before: {dict(grown)}")
            raise


@contextlib.asynccontextmanager
async def books(
    engines: int = 3,
    dispatch: str = "preempting",
    placement: str = "static",
    under_way: int = UNDER_WAY,
    seconds: FakeSeconds = SECONDS,
) -> AsyncIterator[Books]:
    """A cluster that holds at the end what it held at the beginning."""
    settings = QUICK.model_dump()
    settings["control"] |= {
        "dispatch": dispatch,
        "finished_kept": REMEMBERED,
        "decisions_kept": REMEMBERED,
        "arrivals_kept": REMEMBERED,
        "window_s": 0.1,
        "retry_backoff_s": 0.001,
        "checkpoint_every": 2,
        "checkpoint_interval_s": 0.0,
    }
    config = Config.parse({**settings, "placement": {"policy": placement}})
    groups = FakeGroups()

    def make() -> FakeEngine:
        return Troubled(seconds=seconds, groups=groups)

    async with (
        serving(engines, config=config, make=make) as cluster,
        connect(cluster) as client,
    ):
        at = Books(cluster, client, groups, under_way)
        at.reactor.meet_at("nowhere:1")
        for worker in cluster.workers:  # threads are made when they are first needed
            await worker.plugins[EnginePlugin.name].runner.host.count_tokens("fake", "")
        await at.undisturbed()
        before = at.holdings()
        yield at
        await at.undisturbed()
        await at.is_as(before)


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake engines meet without one."""
    monkeypatch.setattr(StoreHost, "open", lambda self: None)


@gen_test(timeout=LIMIT_S)
async def test_cancels_at_every_moment_leave_nothing() -> None:
    dice = random.Random(0)
    async with books() as at:
        moments = [dice.choice(MOMENTS) for _ in range(CANCELS)]
        stopped = await asyncio.gather(
            *(at.cancelled(f"{moment}-{number}", moment) for number, moment in enumerate(moments))
        )
        assert set(at.moments.at_cancel) >= set(MOMENTS) - {Phase.COMPLETED, Phase.DENOISED}
        assert at.moments.at_cancel.total() == sum(stopped) < CANCELS


@gen_test(timeout=LIMIT_S)
async def test_jobs_that_fail_leave_nothing() -> None:
    dice = random.Random(0)
    async with books() as at:
        names = [
            f"{dice.choice(TROUBLES) if number % 5 == 0 else 'good'}-{number}"
            for number in range(JOBS)
        ]
        ends = await asyncio.gather(*(at.job(name) for name in names))
        assert Counter(ends) == Counter(map(expected_end, names))


@gen_test(timeout=LIMIT_S)
async def test_groups_that_are_cancelled_and_fail_leave_nothing() -> None:
    dice = random.Random(0)
    async with books(4, "elastic", "colocated", 2, FakeSeconds(step=0.01)) as at:
        jobs, cancels = [], []
        for number in range(GROUPED):
            if number % 2:
                moment = dice.choice([Phase.DENOISING, *MOMENTS])
                cancels.append(at.cancelled(f"{moment}-{number}", moment))
            else:
                name = dice.choice(TROUBLES) if number % 10 == 0 else "good"
                jobs.append(at.job(f"{name}-{number}"))
        ends, stopped = await asyncio.gather(asyncio.gather(*jobs), asyncio.gather(*cancels))
        assert at.moments.at_cancel.total() == sum(stopped) > 0
        assert {"completed", "failed"} <= set(ends)
        assert at.moments.grouped


HISTORY = ("dashboards.", "metrics.", "rib.", "control.progress", "control.policies.shape_times")


def is_history(kind: type) -> bool:
    """Whether so many of a kind are kept that these requests do not fill it, or differ in it."""
    within = tuple(f"elastic_dit.{module}" for module in HISTORY)
    return kind in (TransferRecord, StageRecord) or kind.__module__.startswith(within)


def expected_end(name: str) -> str:
    if name.startswith(REFUSED):
        return REFUSED
    return "completed" if name.startswith("good") else "failed"
