"""Groups of real processes with the embedded model, while members die, hang, come and go."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import elastic_dit
from elastic_dit.cluster.control_plugin import ControlPlugin
from elastic_dit.cluster.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.control import actions
from elastic_dit.control.dispatch import register_dispatch
from elastic_dit.control.groups import GroupState
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.cluster.processes import until
from tests.cluster.scripted import Scripted

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GPUS = 4
STEPS = 24
BLOCKS = ((0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1, 2, 3))
ROUNDING = 1
"""Largest difference of a pixel: latents differ by 1e-6, which may cross a rounding border."""
GROUP_TIMEOUT_S = 6.0

register_dispatch("scripted", Scripted)


class Stand:
    """A cluster of processes, and what a test asks of it from outside of its event loop."""

    def __init__(self, cluster: LocalElasticCluster, client: elastic_dit.Client) -> None:
        self.cluster = cluster
        self.client = client
        control = cluster.scheduler.plugins[ControlPlugin.name]
        self.reactor = control.reactor
        self.controller = control.reactor.controller

    def submit(self, seed: int = 1, **options: Any) -> Any:
        size = {"width": 64, "height": 64, "num_frames": 9, "num_inference_steps": STEPS}
        return self.client.submit("a red circle", seed=seed, **{**size, **options})

    def group(self, name: str) -> Any:
        record = self.controller.table.live.get(name)
        group = record.group if record is not None else None
        return group if group is not None and group.stage is Stage.DIT else None

    def order(self, action: actions.Action) -> None:
        async def tick() -> None:
            self.controller.dispatch.orders.append(action)
            self.reactor.tick()

        self.cluster.sync(tick)

    def start_on(self, *gpus: int) -> None:
        self.controller.dispatch.start_on = gpus

    def step(self, name: str, step: int, gpus: tuple[int, ...]) -> None:
        def there() -> bool:
            group = self.group(name)
            return group is not None and group.step >= step and group.gpus == gpus

        try:
            until(there, 30.0)
        except AssertionError as error:
            error.add_note(self.log)
            raise

    def disturb(self, name: str, dice: random.Random) -> None:
        """Give a running request another group, whatever is possible; wait until it has."""
        group = self.group(name)
        if group is None or group.state is not GroupState.RUNNING or group.step >= STEPS - 2:
            return
        present, epoch = group.gpus, group.epoch
        able = {gpu.gpu for gpu in self.controller.pool if gpu.is_idle}.union(present)
        fitting = [
            block
            for block in BLOCKS
            if able.issuperset(block) and set(block) & set(present) and block != present
        ]
        if fitting:
            self.order(actions.Resize(name, dice.choice(fitting), "dice"))
        step = group.step
        until(lambda: group.epoch > epoch or group.step > step or not group.held)

    @property
    def log(self) -> str:
        return "\n".join(map(str, self.controller.decisions))

    def signal(self, gpu: int, number: signal.Signals) -> None:
        os.kill(self.cluster.workers[f"local-{gpu}"].pid, number)

    def whole(self) -> bool:
        pool = self.controller.pool
        return len(pool) == GPUS and all(gpu.is_idle and len(gpu.resident) == 3 for gpu in pool)

    def dops(self, result: Any) -> list[int]:
        record = self.controller.table.finished[result.request.request_id]
        assert record.phase is Phase.COMPLETED
        return [len(each.gpus) for each in record.records if each.stage is Stage.DIT]


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    config = Config.parse(
        {
            "placement": {"policy": "colocated", "interval_s": 0.2},
            "control": {"dispatch": "scripted", "tick_s": 0.1, "progress_interval_s": 0.001},
            "engine": {"group_timeout_s": GROUP_TIMEOUT_S},
        }
    )
    with (
        LocalElasticCluster(
            virtual_gpus=GPUS, config=config, dashboard_address=None, control_worker=False
        ) as cluster,
        elastic_dit.Client(cluster, config=config) as client,
    ):
        at = Stand(cluster, client)
        until(lambda: at.whole() and at.reactor.carrier.store, 120.0)
        yield at


@pytest.fixture
def at(stand: Stand) -> Stand:
    stand.start_on()
    until(stand.whole, 120.0)
    return stand


@pytest.fixture(scope="module")
def undisturbed(stand: Stand) -> Callable[[int], Any]:
    """Frames on one GPU by seed, made when first asked for."""
    known: dict[int, Any] = {}

    def frames(seed: int) -> Any:
        if seed not in known:
            stand.start_on()
            result = stand.submit(seed).result()
            assert stand.dops(result) == [1]
            known[seed] = result.frames
        return known[seed]

    return frames


def differ(one: Any, other: Any) -> int:
    return int(np.abs(one.astype(int) - other.astype(int)).max())


def test_promoted_and_demoted_at_random_boundaries(at: Stand, undisturbed: Any) -> None:
    dice = random.Random(7)
    references = {seed: undisturbed(seed) for seed in (1, 2)}
    futures = {seed: at.submit(seed) for seed in references}
    while not all(future.done() for future in futures.values()):
        for future in futures.values():
            at.disturb(future.key, dice)
    dops: list[int] = []
    for seed, future in futures.items():
        result = future.result()
        assert differ(result.frames, references[seed]) <= ROUNDING
        dops += at.dops(result)
    assert max(dops) > 1, at.log
    assert len(dops) >= 6, at.log


@pytest.mark.parametrize("victim", [0, 1], ids=["master", "follower"])
def test_a_killed_member_costs_a_step(at: Stand, undisturbed: Any, victim: int) -> None:
    reference = undisturbed(1)
    at.start_on(0, 1)
    future = at.submit(1)
    at.step(future.key, 4, (0, 1))
    at.start_on()
    killed_at = time.monotonic()  # the control plane's clock
    at.signal(victim, signal.SIGKILL)
    at.step(future.key, 5, (1 - victim,))
    decisions = [each for each in at.controller.decisions if each.at >= killed_at]
    noticed_at = next(each.at for each in decisions if each.what == "lost")
    assert noticed_at - killed_at < 1.0, at.log
    result = future.result()
    assert differ(result.frames, reference) <= ROUNDING
    assert at.controller.table.finished[future.key].attempt == 1
    assert at.dops(result) == [2, 1]


@pytest.mark.parametrize("victim", [0, 1], ids=["master", "follower"])
def test_a_hung_member_is_left_behind_and_made_anew(
    at: Stand, undisturbed: Any, victim: int
) -> None:
    reference = undisturbed(1)
    at.start_on(0, 1)
    future = at.submit(1)
    at.step(future.key, 4, (0, 1))
    at.start_on()
    hung = at.cluster.workers[f"local-{victim}"].pid
    os.kill(hung, signal.SIGSTOP)
    at.step(future.key, 5, (1 - victim,))
    result = future.result()
    assert differ(result.frames, reference) <= ROUNDING
    assert at.controller.table.finished[future.key].attempt == 1
    until(at.whole)
    assert at.cluster.workers[f"local-{victim}"].pid != hung
