"""A running cluster writes what its split reaches, and no file disturbs it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane.telemetry import TelemetryKeeper
from elastic_dit.config import Config, PlacementConfig, StageRatio
from elastic_dit.control.placement import make_placement
from elastic_dit.control.placement.telemetry import split_in_force
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.predict.examples import read_examples
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, prompts, serving
from tests.control.placement_world import FOUR_STEPS, MODEL, World

WINDOW_S = 60.0
RATIO = StageRatio(encoder=1, dit=2, decoder=1)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 30.0))


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "elastic-dit-telemetry"]


class Watched:
    """A cluster in pretended time that a keeper looks at once a window."""

    def __init__(self, target: Path | None, kept: int = 10) -> None:
        self.world = World(make_placement(PlacementConfig(ratio=RATIO), [MODEL]))
        self.world.join(*range(4))
        self.world.look()
        self.keeper = TelemetryKeeper(
            PlacementConfig(
                telemetry=None if target is None else str(target),
                telemetry_window_s=WINDOW_S,
                telemetry_kept=kept,
            )
        )
        self.completed = 0

    async def window(self, completed: int = 30) -> None:
        """Let one pass in which so many requests were completed and six were there."""
        self.world.arrive(FOUR_STEPS, completed, every_s=WINDOW_S / completed)
        self.completed += completed
        self.world.now += WINDOW_S
        await self.look()

    async def look(self) -> None:
        seen = replace(self.world.snapshot(), completed=self.completed, live=6)
        await eventually(lambda: self.keeper.look(seen))


def test_examples_are_appended_over_lives_and_the_latest_kept(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"

    async def live(*completed: int) -> None:
        watched = Watched(path, kept=3)
        await watched.look()
        for count in completed:
            await watched.window(count)
        await watched.keeper.close()
        await eventually(lambda: not threads())

    def rates() -> list[float]:
        return [outcome.throughput_hz for each in read_examples(path) for _, outcome in each.seen]

    run(live(30, 60))
    assert rates() == [0.5, 1.0]
    run(live(90, 5, 120))
    assert rates() == [1.0, 1.5, 2.0], "five requests teach nothing"


def test_a_file_that_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "later" / "telemetry.jsonl"

    async def live() -> None:
        watched = Watched(path)
        await watched.look()
        await eventually(lambda: caplog.records)
        for _ in range(5):  # more than can wait
            await watched.window()
        path.parent.mkdir()
        await watched.window()
        await watched.keeper.close()

    with caplog.at_level(logging.WARNING):
        run(live())
    [record] = caplog.records
    assert str(path) in record.getMessage()
    assert record.exc_info is None
    assert len(list(read_examples(path))) >= 1


def test_a_file_of_something_else_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    async def live() -> None:
        watched = Watched(path)
        await watched.look()
        await watched.window()
        await watched.keeper.close()

    run(live())
    assert path.read_text() == "mine"
    assert "line 1" in caplog.text


def test_without_a_file_there_is_no_thread() -> None:
    async def live() -> None:
        watched = Watched(None)
        await watched.look()
        await watched.window()
        assert threads() == []
        await watched.keeper.close()

    run(live())


@dataclass
class Clock:
    """Stands still until it is told."""

    now: float = field(default_factory=time.monotonic)

    def __call__(self) -> float:
        return self.now


@pytest.mark.cluster
@gen_test()
async def test_a_cluster_that_serves_writes_what_train_predictor_reads(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    placement = {"interval_s": 0.1, "telemetry": str(path), "telemetry_window_s": WINDOW_S}
    config = Config.parse({**QUICK.model_dump(), "placement": placement})
    seconds = FakeSeconds(encoder=0.001, step=0.005, decoder=0.001)
    async with (
        serving(4, config=config, make=lambda: FakeEngine(seconds=seconds)) as cluster,
        connect(cluster) as client,
    ):
        reactor = cluster.control.reactor
        snapshot = reactor.controller.snapshot
        await eventually(lambda: split_in_force(snapshot(reactor.clock())) is not None)
        reactor.clock = clock = Clock()
        look = cluster.control.planning.snapshot  # as a scheduler actor asks for it
        clock.now += WINDOW_S
        await look()
        for _ in range(4):
            futures = [await client.submit(prompt) for prompt in prompts(6)]
            clock.now += (WINDOW_S - 0.1) / 4
            await look()
            await asyncio.gather(*futures)
        async with asyncio.timeout(20.0):
            while not path.exists():
                clock.now += 0.1
                await look()
                await asyncio.sleep(0.01)
    [example] = read_examples(path)
    [(split, outcome)] = example.seen
    assert str(split) == "1:2:1"
    assert outcome.throughput_hz == pytest.approx(24 / WINDOW_S, rel=0.1)
    assert example.situation.workload.rate_hz == pytest.approx(24 / WINDOW_S, rel=0.1)
