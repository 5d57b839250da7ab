"""Both journals do the same, and the one on disk is there in the next life."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import JournalError, UnknownRequest
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.journal.entry import Accepted, Change, Ended, Forgotten, Started
from elastic_dit.journal.journal import Journal, MemoryJournal, Page
from elastic_dit.journal.sqlite import SqliteJournal
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.journal.bench import FAILURE, RECORD, completed, failed, make_entry

Life = Callable[[], Journal]
"""Opens the journal once more, as after a restart."""


@pytest.fixture(params=["memory", "sqlite"])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    memory, opened = MemoryJournal(), []

    def begin() -> Journal:
        for journal in opened:
            journal.close()
        opened.append(
            memory if request.param == "memory" else SqliteJournal(tmp_path / "journal.sqlite")
        )
        return opened[-1]

    yield begin
    for journal in opened:
        journal.close()


def ids(entries: object) -> list[str]:
    return [entry.request_id for entry in entries]  # type: ignore[attr-defined]


def test_what_was_accepted_is_there_in_the_next_life(life: Life) -> None:
    entries = [make_entry(name) for name in "abc"]
    journal = life()
    assert list(journal.begin_life()) == []
    journal.apply([Accepted(entry) for entry in entries])
    journal.apply([completed("b")])
    assert list(life().begin_life()) == [entries[0], entries[2]]


def test_an_end_is_remembered_whole(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry(name)) for name in "abc"])
    cancel = Ended(
        request_id="c", phase=Phase.CANCELLED, finished_at=21.0, attempts=0, reason="by its user"
    )
    journal.apply([Started("a", 1, Stage.ENCODER), completed("a"), failed("b"), cancel])
    found = life().find(["a", "b", "c", "d"])
    assert set(found) == set("abc")
    a, b, c = (found[name] for name in "abc")
    assert (a.phase, a.records, a.has_result, a.attempts) == (
        Phase.COMPLETED,
        (RECORD,),
        True,
        2,
    )
    assert (b.phase, b.failure, b.finished_at) == (Phase.FAILED, FAILURE, 20.0)
    assert (c.phase, c.reason) == (Phase.CANCELLED, "by its user")
    assert a.request == make_entry("a").request


def test_restarts_count_those_that_ran(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry(name)) for name in ("ran", "waited")])
    journal.apply([Started("ran", 1, Stage.ENCODER), Started("ran", 2, Stage.DIT)])
    ran, waited = life().begin_life()
    assert (ran.restarts, ran.attempts, ran.stage) == (1, 2, Stage.DIT)
    assert (waited.restarts, waited.attempts, waited.stage) == (0, 0, None)
    ran, _ = life().begin_life()  # it did not start in that life
    assert ran.restarts == 1


def test_a_picture_is_whole_in_the_next_life_and_only_then(life: Life) -> None:
    image = InputImage.of(sample_image(32, 32))
    journal = life()
    journal.apply([Accepted(make_entry(name, image=image.data)) for name in ("waits", "ended")])
    journal.apply([completed("ended")])
    [entry] = journal.find(["waits"]).values()
    assert entry.request.image == image
    assert not entry.request.image.is_held
    assert all(not e.request.image.is_held for e in journal.page(Page(limit=9)))
    [entry] = life().begin_life()
    assert entry.request.image.data == image.data


def test_pages_follow_each_other_in_both_directions(life: Life) -> None:
    journal = life()
    names = [f"r{index}" for index in range(7)]
    journal.apply([Accepted(make_entry(name)) for name in names])
    for newest_first in (True, False):
        seen: list[str] = []
        while len(seen) < len(names):
            after = seen[-1] if seen else None
            page = journal.page(Page(limit=3, after=after, newest_first=newest_first))
            seen += ids(page)
        assert seen == (names[::-1] if newest_first else names)
    with pytest.raises(UnknownRequest, match="nobody"):
        journal.page(Page(limit=3, after="nobody"))


def test_a_list_can_be_of_an_owner_or_of_the_ended(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry(n, owner=o)) for n, o in (("a", "x"), ("b", "y"))])
    journal.apply([Accepted(make_entry("c", owner="x")), completed("c")])
    assert ids(journal.page(Page(limit=9, owner="x"))) == ["c", "a"]
    assert ids(journal.page(Page(limit=9, ended=True))) == ["c"]
    assert ids(journal.page(Page(limit=9, ended=False, owner="x"))) == ["a"]


def test_the_expired_are_named_the_oldest_first_and_forgotten(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry(name)) for name in "abcd"])
    journal.apply([completed("a", 30.0), completed("b", 20.0), completed("c", 99.0)])
    assert list(journal.expired(50.0, 9)) == ["b", "a"]
    assert list(journal.expired(50.0, 1)) == ["b"]
    journal.apply([Forgotten("a"), Forgotten("b")])
    assert list(life().expired(50.0, 9)) == []
    assert set(life().find("abcd")) == {"c", "d"}


def test_an_id_accepted_again_begins_anew(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry("a")), Accepted(make_entry("b")), failed("a")])
    again = replace(make_entry("a"), accepted_at=40.0)
    journal.apply([Accepted(again)])
    assert journal.find(["a"])["a"] == again
    assert ids(life().begin_life()) == ["b", "a"]


def test_a_stage_that_begins_after_the_end_changes_nothing(life: Life) -> None:
    journal = life()
    journal.apply([Accepted(make_entry("a")), completed("a"), Started("a", 9, Stage.DIT)])
    assert journal.find(["a"])["a"].attempts == 2
    journal.apply([Accepted(make_entry("a"))])
    assert [entry.restarts for entry in life().begin_life()] == [0]


def test_changes_of_what_is_not_there_do_nothing(life: Life) -> None:
    journal = life()
    journal.apply([completed("a"), Started("a", 1, Stage.DIT), Forgotten("a")])
    assert journal.find(["a"]) == {}


NAMES = st.sampled_from("abcd")
CHANGES = st.one_of(
    NAMES.map(lambda name: Accepted(make_entry(name))),
    st.builds(Started, NAMES, st.integers(1, 3), st.sampled_from(Stage)),
    NAMES.map(completed),
    NAMES.map(failed),
    NAMES.map(Forgotten),
)


@settings(max_examples=40, deadline=None)
@given(lives=st.lists(st.lists(CHANGES, max_size=8), max_size=4))
def test_whatever_happens_both_tell_the_same(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[Change]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.sqlite"
    memory = MemoryJournal()
    for changes in lives:
        sqlite = SqliteJournal(path)
        assert list(sqlite.begin_life()) == list(memory.begin_life())
        for journal in (sqlite, memory):
            journal.apply(changes)
        assert sqlite.page(Page(limit=9)) == memory.page(Page(limit=9))
        sqlite.close()


# ------------------------------------------------------------------------------ what goes wrong
def test_a_second_control_plane_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = SqliteJournal(path)
    with pytest.raises(JournalError, match="in use by another control plane"):
        SqliteJournal(path)
    first.close()
    SqliteJournal(path).close()


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk " * 1000)
    with pytest.raises(JournalError, match="file is not a database"):
        SqliteJournal(path)
    with pytest.raises(JournalError, match="No such file or directory"):
        SqliteJournal(tmp_path / "no such folder" / "journal.sqlite")
    assert path.read_text().startswith("buy milk")


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.apply([Accepted(make_entry("a"))])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    journal.close()
    assert modes == {"journal.sqlite": 0o600, "journal.sqlite-wal": 0o600}


def test_a_journal_of_another_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="version 99"):
        SqliteJournal(path)


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (b"no picture", "10 bytes"),
        (b"", "0 bytes"),
        (None, "0 bytes"),
        (InputImage.of(sample_image(16, 32)).data, "PNG 16x32"),
        (InputImage.of(sample_image(32, 32)).data[:-20], "PNG 32x32"),
    ],
)
def test_a_damaged_picture_is_said_of_its_request_alone(
    damaged: bytes | None, said: str, tmp_path: Path
) -> None:
    path, image = tmp_path / "journal.sqlite", InputImage.of(sample_image(32, 32))
    journal = SqliteJournal(path)
    journal.apply([Accepted(make_entry(name, image=image.data)) for name in "abc"])
    journal.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE requests SET picture = ? WHERE request_id = 'b'", (damaged,))
    journal = SqliteJournal(path)
    a, b, c = journal.begin_life()
    journal.close()
    assert [entry.request.image.data for entry in (a, c)] == [image.data] * 2
    assert a.damage == c.damage == ""
    assert b.damage.startswith("its picture is damaged")
    assert said in b.damage
    assert b.request == make_entry("b", image=image.data).request
    assert not b.request.image.is_held


def test_changes_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    bad = replace(make_entry("b"), accepted_at=None)  # type: ignore[arg-type]
    with pytest.raises(JournalError, match="NOT NULL"):
        journal.apply([Accepted(make_entry("a")), Accepted(bad)])
    assert journal.find("ab") == {}
    journal.apply([Accepted(make_entry("a"))])
    assert set(journal.find("ab")) == {"a"}
    journal.close()
