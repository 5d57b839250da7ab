"""Groups of real processes with the embedded model, while members die, hang, come and go."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import elastic_dit
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
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
TOLERANCE = 1e-5
"""Largest difference of a latent, over the largest latent: what float32 carries."""
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
            await self._tick()

        self.cluster.sync(tick)

    def start_on(self, *gpus: int) -> None:
        self.controller.dispatch.start_on = gpus

    def hold_decodes(self, hold: bool) -> None:
        self.controller.dispatch.holds_decodes = hold
        self.cluster.sync(self._tick)

    async def _tick(self) -> None:
        self.reactor.tick()

    def is_denoised(self, name: str) -> bool:
        record = self.controller.table.live.get(name)
        return record is not None and record.phase is Phase.DENOISED

    def latents(self, name: str) -> Any:
        """What the transformer made, from the engine that keeps it until the decode."""
        until(lambda: self.is_denoised(name), 60.0)
        gpu = self.controller.table.live[name].artifacts[Stage.DIT].gpu
        address = self.reactor.directory.address(gpu)
        return self.client.dask.run(latents_kept, name, workers=[address])[address]

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
        at.hold_decodes(True)
        yield at


@pytest.fixture
def at(stand: Stand) -> Stand:
    stand.start_on()
    until(stand.whole, 120.0)
    return stand


class Made(NamedTuple):
    """What a request made on its way."""

    latents: Any
    frames: Any

    def check(self, other: Made) -> None:
        """Fail where another run of the request made something else."""
        largest = np.abs(self.latents).max()
        assert np.abs(self.latents - other.latents).max() <= TOLERANCE * largest
        assert np.abs(self.frames.astype(int) - other.frames.astype(int)).max() <= ROUNDING


def latents_kept(name: str, dask_worker: Any = None) -> Any:
    """On a worker: the latents of a request that its engine keeps."""
    outbox = dask_worker.plugins["elastic-dit-engine"].runner.outbox
    [ref] = [ref for ref in outbox if ref.request_id == name and str(ref.stage) == "dit"]
    return outbox.get(ref).payload["latents"].numpy()


@pytest.fixture(scope="module")
def undisturbed(stand: Stand) -> Callable[[int], Made]:
    """What is made on one GPU by seed, when first asked for."""
    known: dict[int, Made] = {}

    def made(seed: int) -> Made:
        if seed not in known:
            stand.start_on()
            future = stand.submit(seed)
            [known[seed]] = finish(stand, future)
            assert stand.dops(future.result()) == [1]
        return known[seed]

    return made


def finish(at: Stand, *futures: Any) -> list[Made]:
    """Wait for requests, with a look at their latents while no decode begins."""
    latents = [at.latents(future.key) for future in futures]
    at.hold_decodes(False)
    frames = [future.result().frames for future in futures]
    at.hold_decodes(True)
    return [Made(*each) for each in zip(latents, frames, strict=True)]


def test_promoted_and_demoted_at_random_boundaries(at: Stand, undisturbed: Any) -> None:
    dice = random.Random(7)
    references = {seed: undisturbed(seed) for seed in (1, 2)}
    futures = {seed: at.submit(seed) for seed in references}
    while not all(at.is_denoised(future.key) for future in futures.values()):
        for future in futures.values():
            at.disturb(future.key, dice)
    dops: list[int] = []
    for seed, made in zip(futures, finish(at, *futures.values()), strict=True):
        references[seed].check(made)
        dops += at.dops(futures[seed].result())
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
    [made] = finish(at, future)
    reference.check(made)
    assert at.controller.table.finished[future.key].attempt == 1
    assert at.dops(future.result()) == [2, 1]


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
    [made] = finish(at, future)
    reference.check(made)
    assert at.controller.table.finished[future.key].attempt == 1
    until(at.whole)
    assert at.cluster.workers[f"local-{victim}"].pid != hung
