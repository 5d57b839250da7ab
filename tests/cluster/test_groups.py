"""Groups of fake engines under a real control plane: promoted, demoted, cut short, bereaved."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config
from elastic_dit.control import actions
from elastic_dit.control.dispatch import dispatch_policies, register_dispatch
from elastic_dit.control.groups import GroupState
from elastic_dit.engine.fake import FakeEngine, FakeSeconds, fake_frames
from elastic_dit.engine.fake_group import FakeGroups
from elastic_dit.request import Stage
from tests.cluster.conditions import eventually
from tests.cluster.scripted import Scripted
from tests.cluster.serving import QUICK, Cluster, connect, serving

pytestmark = pytest.mark.cluster

STEPS = 40
LIMIT_S = 40.0


register_dispatch("scripted", Scripted)
CONFIG = Config.parse(
    {
        **QUICK.model_dump(),
        "control": {
            **QUICK.control.model_dump(),
            "dispatch": "scripted",
            "progress_interval_s": 1e-6,  # every step is told
        },
    }
)


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake engines meet without one."""
    monkeypatch.setattr(StoreHost, "open", lambda self: None)


class Stand:
    """A cluster of fake engines that all hold everything, and what a test asks of it."""

    def __init__(self, cluster: Cluster, client: Any, make: Callable[[], FakeEngine]) -> None:
        self.make = make
        self.cluster = cluster
        self.client = client
        self.controller = cluster.control.reactor.controller
        self.policy: Any = self.controller.dispatch

    def submit(self, request_id: str = "r") -> Any:
        return self.client.submit("a red circle", request_id=request_id, num_inference_steps=STEPS)

    def group(self, request_id: str = "r") -> Any:
        record = self.controller.table.live.get(request_id)
        group = record.group if record is not None else None
        return group if group is not None and group.stage is Stage.DIT else None

    def state(self) -> str:
        """What everybody believes, for the message of a test that fails."""
        runners = [worker.plugins[EnginePlugin.name].runner for worker in self.cluster.workers]
        lines = [*self.controller.decisions, *self.controller.table.live.values()]
        lines += [f"{group!r} {group.held} {group.target}" for group in self.controller.groups]
        lines += [f"engine {runner.host.gpu}: {runner.inspect()['queue']}" for runner in runners]
        return "\n".join(map(str, lines))

    async def step(self, step: int, gpus: tuple[int, ...], request_id: str = "r") -> None:
        """Until it has done so many steps and runs on exactly these."""

        def there() -> bool:
            group = self.group(request_id)
            return group is not None and group.step >= step and group.gpus == gpus

        try:
            await eventually(there)
        except AssertionError as error:
            error.add_note(self.state())
            raise

    def order(self, action: actions.Action) -> None:
        self.policy.orders.append(action)
        self.cluster.control.reactor.tick()

    def resize(self, *gpus: int, request_id: str = "r") -> None:
        self.order(actions.Resize(request_id, gpus, "as the test says"))

    def dops(self, result: Any) -> list[tuple[int, ...]]:
        """GPUs of each segment of the denoising."""
        record = self.controller.table.finished[result.request.request_id]
        return [each.gpus for each in record.records if each.stage is Stage.DIT]


@contextlib.asynccontextmanager
async def stand(
    engines: int = 4, step_s: float = 0.03, dispatch: str = "scripted", **options: Any
) -> AsyncIterator[Stand]:
    groups = FakeGroups()
    settings = CONFIG.model_dump()
    settings["control"]["dispatch"] = dispatch
    config = Config.parse({**settings, "placement": {"policy": "colocated"}})

    def make() -> FakeEngine:
        return FakeEngine(seconds=FakeSeconds(step=step_s), groups=groups, **options)

    async with serving(engines, config=config, make=make) as cluster:
        cluster.control.reactor.meet_at("nowhere:1")
        controller = cluster.control.reactor.controller
        await eventually(lambda: all(len(gpu.resident) == 3 for gpu in controller.pool))
        async with connect(cluster) as client:
            yield Stand(cluster, client, make)
        await cluster.is_clean()
        assert controller.refused == 0, list(controller.decisions)[-1]
        for gpu in controller.pool:
            await eventually(lambda gpu=gpu: gpu.group is None)
        for worker in cluster.workers:
            groups = worker.plugins[EnginePlugin.name].runner.groups
            await eventually(lambda groups=groups: not len(groups))


async def check(result: Any) -> None:
    assert np.array_equal(result.frames, fake_frames(result.request))


@pytest.mark.parametrize("dispatch", sorted(set(dispatch_policies()) - {"scripted"}))
@gen_test(timeout=LIMIT_S)
async def test_every_policy_serves_engines(dispatch: str) -> None:
    async with stand(step_s=0.002, dispatch=dispatch) as at:
        videos = await asyncio.gather(*(at.submit(f"r{number}") for number in range(6)))
        results = await asyncio.gather(*videos)
        assert all(np.array_equal(each.frames, fake_frames(each.request)) for each in results)


@gen_test()
async def test_promoted_and_demoted_between_steps_the_frames_are_the_same() -> None:
    async with stand() as at:
        future = await at.submit()
        await at.step(2, (0,))
        at.resize(0, 1)
        await at.step(4, (0, 1))
        at.resize(0, 1, 2, 3)
        await at.step(8, (0, 1, 2, 3))
        at.resize(2, 3)
        await at.step(10, (2, 3))
        at.resize(3)
        await at.step(12, (3,))
        result = await future.result()
        await check(result)
        assert at.dops(result) == [(0,), (0, 1), (0, 1, 2, 3), (2, 3), (3,)]


@gen_test()
async def test_a_group_may_begin_wide_and_its_followers_are_free_before_the_decode() -> None:
    async with stand() as at:
        at.policy.start_on = (0, 1)
        future = await at.submit()
        await at.step(2, (0, 1))
        result = await future.result()
        await check(result)
        assert at.dops(result)[0] == (0, 1)
        decode = at.controller.table.finished["r"].records[-1]
        assert (decode.stage, decode.gpus) == (Stage.DECODER, (0,))


@gen_test()
async def test_a_group_is_preempted_with_a_snapshot_and_goes_on() -> None:
    async with stand() as at:
        at.policy.start_on = (0, 1)
        future = await at.submit()
        await at.step(3, (0, 1))
        at.policy.start_on = (2, 3)
        at.order(actions.Preempt("r", "as the test says"))
        await at.step(4, (2, 3))
        result = await future.result()
        await check(result)
        assert at.controller.table.finished["r"].attempt == 1


@pytest.mark.parametrize("when", [0, 3])
@gen_test()
async def test_a_group_is_cancelled_and_all_are_free(when: int) -> None:
    async with stand() as at:
        at.policy.start_on = (0, 1)
        future = await at.submit()
        await at.step(when, (0, 1))
        await future.cancel()
        assert future.cancelled()
        at.policy.start_on = ()
        again = await at.submit("next")
        await check(await again.result())


@gen_test()
async def test_a_promotion_that_comes_too_late_lets_the_joiners_go() -> None:
    async with stand() as at:
        for name in ("first", "second"):
            future = await at.submit(name)
            await at.step(STEPS - 1, (0,), name)
            at.resize(0, 1, request_id=name)
            result = await future.result()
            await check(result)
            assert at.dops(result) == [(0,)]


@pytest.mark.parametrize("victim", [0, 1])
@gen_test()
async def test_survivors_go_on_without_a_member_that_died(victim: int) -> None:
    async with stand() as at:
        at.policy.start_on = (0, 1)
        future = await at.submit()
        await at.step(3, (0, 1))
        at.policy.start_on = ()
        dead = at.cluster.workers.pop(victim)
        await dead.close()
        await at.step(5, (1 - victim,))
        result = await future.result()
        await check(result)
        assert at.controller.table.finished["r"].attempt == 1
        assert at.dops(result) == [(0, 1), (1 - victim,)]


@gen_test()
async def test_requests_come_and_go_while_groups_change() -> None:
    async with stand(step_s=0.01) as at:
        futures = [await at.submit(f"r{number}") for number in range(6)]
        await at.step(1, (0,), "r0")
        for future in futures:
            await check(await future.result())
            name = next(iter(at.controller.table.live), None)
            free = sorted(gpu.gpu for gpu in at.controller.pool if gpu.is_idle)
            group = at.group(name) if name else None
            if group is None or group.state is not GroupState.RUNNING or not free:
                continue
            if group.dop == 1 and group.step < STEPS - 3:
                at.resize(group.master, free[0], request_id=name)


BLOCKS = ((0,), (1,), (2,), (3,), (0, 1), (2, 3), (1, 2), (0, 3), (0, 1, 2, 3))


def some_order(at: Stand, dice: random.Random) -> actions.Action | None:
    """A change of some running group that is possible now, if there is one."""
    groups = [group for name in at.controller.table.live if (group := at.group(name))]
    running = [group for group in groups if group.state is GroupState.RUNNING]
    if not running:
        return None
    group = dice.choice(running)
    if dice.random() < 0.15:
        return actions.Preempt(group.request_id, "dice")
    able = {gpu.gpu for gpu in at.controller.pool if gpu.is_idle and len(gpu.resident) == 3}
    able.update(group.gpus)
    fitting = [
        block
        for block in BLOCKS
        if able.issuperset(block) and set(block) & set(group.gpus) and block != group.gpus
    ]
    return actions.Resize(group.request_id, dice.choice(fitting), "dice") if fitting else None


@pytest.mark.parametrize("seed", range(3))
@gen_test(timeout=90)
async def test_whatever_happens_in_whatever_order_the_frames_are_the_same(seed: int) -> None:
    dice = random.Random(seed)
    async with stand(step_s=0.01) as at:
        futures = [await at.submit(f"r{number}") for number in range(6)]
        gone = await at.submit("gone")
        losses = 2
        deadline = time.monotonic() + LIMIT_S
        while at.controller.table.live:
            assert time.monotonic() < deadline, at.state()
            await asyncio.sleep(0.01 * dice.random())  # how far things get is the dice's affair
            chance = dice.random()
            if chance < 0.01 and losses:
                losses -= 1
                await at.cluster.workers.pop(dice.randrange(len(at.cluster.workers))).close()
                await at.cluster.add_engine(at.make, f"new-{losses}")
            elif chance < 0.03:
                await gone.cancel()
            elif (order := some_order(at, dice)) is not None:
                at.order(order)
        for future in futures:
            await check(await future.result())
