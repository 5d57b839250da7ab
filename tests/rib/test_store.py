"""Latencies in a database: versions, replacing, merging, and what can go wrong."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from elastic_dit.errors import ConfigError, RibError
from elastic_dit.request import Stage
from elastic_dit.rib import Source
from elastic_dit.rib.store import MOST_SAMPLES, RibStore, rib_url
from elastic_dit.rib.tables import Base
from tests.rib.rows import key, latency


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rib.sqlite"


@pytest.fixture
def store(path: Path) -> RibStore:
    return RibStore(str(path))


def test_what_is_written_is_read_by_another(store: RibStore, path: Path) -> None:
    rows = [latency(1.0), latency(0.6, dop=2), latency(0.2, stage=Stage.DECODER, guided=False)]
    store.save(rows, "v1")
    assert set(RibStore(f"sqlite:///{path}").load("v1")) == set(rows)


def test_a_new_profile_replaces_and_what_was_seen_merges(store: RibStore) -> None:
    store.save([latency(1.0, repeats=10)], "v1")
    store.refine([latency(3.0, repeats=10)], "v1")
    [merged] = store.load("v1")
    assert (merged.seconds, merged.repeats, merged.source) == (2.0, 20, Source.OBSERVED)
    store.save([latency(5.0)], "v1")
    assert store.load("v1") == (latency(5.0),)
    for _ in range(3):
        store.refine([latency(1.0, repeats=MOST_SAMPLES // 2)], "v1")
    [last] = store.load("v1")
    assert (last.seconds, last.repeats) == (pytest.approx(1.0, rel=0.05), MOST_SAMPLES)


def test_a_shape_that_was_only_seen_is_added(store: RibStore) -> None:
    store.refine([replace(latency(1.0), source=Source.OBSERVED)], "v1")
    [added] = store.load("v1")
    assert (added.seconds, added.source) == (1.0, Source.OBSERVED)


def test_other_software_is_an_estimate_until_measured(store: RibStore) -> None:
    store.save([latency(1.0), latency(2.0, 128)], "v1")
    store.save([latency(0.5)], "v2")
    found = {each.key: each for each in store.load("v2")}
    assert (found[key()].seconds, found[key()].source) == (0.5, Source.PROFILED)
    assert (found[key(128)].seconds, found[key(128)].source) == (2.0, Source.ESTIMATED)
    store.save([latency(9.0)], "v3")  # newer, but not ours
    assert {each.key: each.seconds for each in store.load("v2")}[key()] == 0.5


def test_the_optimal_degree_follows_the_latencies(store: RibStore) -> None:
    store.save([latency(1.0), latency(0.5, dop=2), latency(0.45, dop=4)], "v1")
    assert store.optimal_dops("v1") == {key(): 2}
    store.refine([latency(0.1, dop=4, repeats=MOST_SAMPLES)], "v1")
    assert store.optimal_dops("v1") == {key(): 4}
    assert store.optimal_dops("v2") == {}


def test_two_writers_lose_nothing(store: RibStore, path: Path) -> None:
    def write(number: int) -> None:
        other = RibStore(str(path))
        for width in range(16, 16 * 9, 16):
            other.refine([latency(1.0, width + 1000 * number)], "v1")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(store.load("v1")) == 24


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nosuchdb://x/y", "the URL of a database whose driver is installed"),
        ("postgresql+nosuchdriver://me:secret@x/y", "the URL of a database whose driver"),
        ("://", "a database's URL or the path of a file"),
    ],
)
def test_a_url_that_cannot_be(target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        RibStore(target)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(RibError, match=r"rib.sqlite: DatabaseError"):
        RibStore(str(path))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RibError, match="unable to open database file"):
        RibStore(str(tmp_path / "none" / "rib.sqlite"))


def test_tables_of_another_release_are_left_alone(store: RibStore, path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE rib_schema SET version = 99")
    connection.close()
    with pytest.raises(RibError, match="its tables are of version 99, ours of 1"):
        RibStore(str(path))


def test_a_password_is_shown_nowhere() -> None:
    url = rib_url("mysql+pymysql://me:secret@db/rib")
    assert "secret" not in f"{url} {url!r}"


@pytest.mark.parametrize("dialect", [mysql, postgresql, sqlite], ids=lambda each: each.__name__)
def test_every_database_can_make_the_tables(dialect: object) -> None:
    for table in Base.metadata.sorted_tables:
        made = str(CreateTable(table).compile(dialect=dialect.dialect()))  # type: ignore[attr-defined]
        assert table.name in made
    # An index of InnoDB takes 3 072 bytes, and a character up to four.
    widths = {column.name: column.type for column in Base.metadata.tables["rib_latencies"].columns}
    texts = ("model", "kind", "software", "stage")
    assert sum(4 * widths[name].length for name in texts) + 8 * 8 < 3072  # type: ignore[attr-defined]
