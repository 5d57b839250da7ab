"""Changes reach the journal in groups, in order, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from elastic_dit.errors import JournalError
from elastic_dit.journal.entry import Accepted, Change, Forgotten
from elastic_dit.journal.journal import MemoryJournal
from elastic_dit.journal.writer import JournalWriter
from tests.journal.bench import completed, make_entry


class Slow(MemoryJournal):
    """Waits in each commit until told; remembers commits and their threads."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.groups: list[int] = []
        self.threads: set[int] = set()

    def apply(self, changes: Sequence[Change]) -> None:
        assert self.go.wait(30)
        self.groups.append(len(changes))
        self.threads.add(threading.get_ident())
        super().apply(changes)


def test_what_comes_during_a_commit_goes_into_the_next_together() -> None:
    async def check() -> None:
        journal = Slow()
        writer = JournalWriter(lambda: journal)
        first = writer.write(Accepted(make_entry("first")))
        await asyncio.sleep(0)  # its commit begins
        rest = [writer.write(Accepted(make_entry(f"r{index}"))) for index in range(100)]
        assert len(writer) == 100
        assert not first.done()
        journal.go.set()
        await asyncio.gather(first, *rest)
        assert journal.groups == [1, 100]
        assert threading.get_ident() not in journal.threads
        await writer.close()

    asyncio.run(check())


def test_a_question_sees_all_changes_before_it_and_none_after() -> None:
    async def check() -> None:
        writer = JournalWriter(MemoryJournal)
        writer.write(Accepted(make_entry("a")))
        reading = asyncio.ensure_future(writer.read(lambda journal: set(journal.find("ab"))))
        await asyncio.sleep(0)
        later = writer.write(Accepted(make_entry("b")))
        assert await reading == {"a"}
        await later
        await writer.close()

    asyncio.run(check())


def test_a_commit_that_fails_is_told_to_its_callers_and_the_next_one_may_work() -> None:
    async def check() -> None:
        journal = MemoryJournal()
        writer = JournalWriter(lambda: journal)
        journal.error = JournalError("journal", "disk full")
        with pytest.raises(JournalError, match="disk full"):
            await writer.write(Accepted(make_entry("a")))
        unseen = writer.write(completed("a"))  # nobody awaits it: no complaint of asyncio's
        await asyncio.wait({unseen})
        journal.error = None
        await writer.write(Accepted(make_entry("b")))
        assert set(await writer.read(lambda j: j.find("ab"))) == {"b"}
        await writer.close()

    asyncio.run(check())


def test_a_journal_that_cannot_be_opened_is_told_each_time() -> None:
    def broken() -> MemoryJournal:
        raise JournalError("journal", "is in use")

    async def check() -> None:
        writer = JournalWriter(broken)
        for _ in range(2):
            with pytest.raises(JournalError, match="is in use"):
                await writer.write(Forgotten("a"))
        await writer.close()

    asyncio.run(check())


def test_closing_makes_what_was_asked_for_and_refuses_more() -> None:
    async def check() -> None:
        journal = MemoryJournal()
        writer = JournalWriter(lambda: journal)
        writes = [writer.write(Accepted(make_entry(f"r{index}"))) for index in range(5)]
        await writer.close()
        assert all(write.done() and not write.exception() for write in writes)
        assert len(journal.begin_life()) == 5
        with pytest.raises(JournalError, match="closed"):
            await writer.write(Forgotten("r0"))

    asyncio.run(check())
