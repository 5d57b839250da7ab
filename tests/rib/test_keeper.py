"""A profile is read and refined in the background, and a broken one harms nobody."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from elastic_dit.errors import RibError
from elastic_dit.request import Stage
from elastic_dit.rib import LatencyBook, RibKeeper, Source, software_version
from elastic_dit.rib.store import RibStore
from tests.cluster.conditions import eventually
from tests.rib.rows import KIND, key, latency, request


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 30.0))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "rib.sqlite")


def see(keeper: RibKeeper, seconds: float, width: int = 64) -> None:
    keeper.observed.observe(request(width), Stage.DIT, 1, seconds, KIND)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "elastic-dit-rib"]


def test_reads_at_the_start_writes_at_intervals_and_at_the_end(path: str) -> None:
    RibStore(path).save([latency(1.0, repeats=1)], software_version())

    async def work() -> None:
        keeper = RibKeeper(path, interval_s=10.0)
        keeper.open()
        await eventually(lambda: len(keeper.times.book))
        assert keeper.times.seconds(request(), Stage.DIT, kind=KIND) == 1.0
        see(keeper, 3.0)
        keeper.tick(0.0)
        keeper.tick(9.0)
        assert len(RibStore(path).load(software_version())) == 1
        keeper.tick(10.0)
        await eventually(lambda: keeper.times.seconds(request(), Stage.DIT, kind=KIND) == 2.0)
        see(keeper, 5.0, width=128)
        await keeper.close()
        assert keeper.times.book.find(key(128)).source is Source.OBSERVED
        await eventually(lambda: not threads())

    run(work())
    assert {each.seconds for each in RibStore(path).load(software_version())} == {2.0, 5.0}


def test_without_a_profile_there_is_no_thread_and_nothing_to_do() -> None:
    async def work() -> None:
        keeper = RibKeeper(None, interval_s=1.0)
        keeper.open()
        see(keeper, 1.0)
        keeper.tick(100.0)
        await keeper.close()
        assert not threads()
        assert keeper.times.seconds(request(), Stage.DIT) is None

    run(work())


def test_a_broken_database_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"

    async def work() -> None:
        keeper = RibKeeper(str(folder / "rib.sqlite"), interval_s=1.0)
        keeper.open()
        now = 0.0
        await eventually(lambda: caplog.records)
        see(keeper, 4.0)
        for _ in range(5):
            now += 1.0
            keeper.tick(now)
            await asyncio.sleep(0)
        folder.mkdir()

        def written() -> bool:
            nonlocal now
            now += 1.0
            keeper.tick(now)
            return len(keeper.times.book) == 1

        await eventually(written)
        await keeper.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    told = [each.message for each in caplog.records if "without its profile" in each.message]
    assert len(told) == 1
    assert "unable to open database file" in told[0]
    [row] = RibStore(str(folder / "rib.sqlite")).load(software_version())
    assert (row.seconds, row.repeats) == (4.0, 1)  # what could not be written was kept


def test_what_several_writes_in_a_row_could_not_save_is_kept(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fail, is_mended, opens = threading.Event(), threading.Event(), RibKeeper._open
    tries: list[int] = []

    def opened(self: RibKeeper) -> RibStore:
        tries.append(len(tries))
        may_fail.wait(20.0)
        if not is_mended.is_set():
            raise RibError(path, "does not answer")
        return opens(self)

    monkeypatch.setattr(RibKeeper, "_open", opened)

    async def work() -> None:
        keeper = RibKeeper(path, interval_s=1.0)
        keeper.open()
        await eventually(lambda: tries)
        keeper.tick(0.0)
        for now, seconds in ((1.0, 4.0), (2.0, 6.0)):
            see(keeper, seconds)
            keeper.tick(now)
        may_fail.set()
        await eventually(lambda: len(tries) == 3)
        is_mended.set()
        await keeper.close()

    run(work())
    [row] = RibStore(path).load(software_version())
    assert (row.seconds, row.repeats) == (5.0, 2)


def test_a_database_that_hangs_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr("elastic_dit.rib.keeper._CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(RibKeeper, "_exchange", lambda self, seen: hangs.wait(20.0))

    async def work() -> None:
        keeper = RibKeeper("nowhere", interval_s=1.0)
        keeper.open()
        for now in range(20):
            see(keeper, 1.0)
            keeper.tick(float(now))
        await keeper.close()
        hangs.set()
        await eventually(lambda: not threads())

    run(work())
    assert "its database hangs" in caplog.text


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_dit.rib.observations._MOST_UNSAVED", 3)
    monkeypatch.setattr("elastic_dit.rib.book._MOST_REMEMBERED", 3)
    keeper = RibKeeper(None, interval_s=1.0)
    for width in range(16, 16 * 10, 16):
        see(keeper, 1.0, width)
        see(keeper, 2.0, width)
    seen = keeper.observed.take()
    assert [each.seconds for each in seen] == [1.5, 1.5, 1.5]
    keeper.observed.give_back(seen)
    see(keeper, 6.0, width=16)
    assert [each.repeats for each in keeper.observed.take()] == [3, 2, 2]
    book = LatencyBook([latency(1.0)])
    for width in range(16, 16 * 10, 16):
        assert book.find(key(width)) is not None
    assert len(book._estimates) <= 3
