"""The journal in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elastic_dit.errors import InvalidRequest, JournalError, UnknownRequest
from elastic_dit.input_image import InputImage
from elastic_dit.journal.entry import Accepted, Change, Ended, Entry, Forgotten, Started
from elastic_dit.journal.journal import Page
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["SqliteJournal"]

SCHEMA_VERSION = 1
"""Of the tables below; a file of another version is refused, not guessed at."""

_LOCK_TIMEOUT_S = 2.0
"""Wait for another process to let go of the file: one that was just killed has by then."""
_IDS_AT_ONCE = 500
"""Ids in one query; SQLite limits its parameters."""

_SETTINGS = (
    # Two control planes on one journal would each run every request: the second is refused.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
)
_SCHEMA = (
    """
    CREATE TABLE requests (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        request_id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        body TEXT NOT NULL,
        picture BLOB,
        dops TEXT NOT NULL,
        accepted_at REAL NOT NULL,
        attempts INTEGER NOT NULL,
        stage TEXT,
        runs INTEGER NOT NULL DEFAULT 0,
        restarts INTEGER NOT NULL DEFAULT 0,
        finished_at REAL,
        outcome TEXT
    )
    """,
    "CREATE INDEX unfinished ON requests (sequence) WHERE finished_at IS NULL",
    "CREATE INDEX ends ON requests (finished_at) WHERE finished_at IS NOT NULL",
    "CREATE INDEX owners ON requests (owner, sequence)",
)
_COLUMNS = "body, owner, dops, accepted_at, attempts, stage, restarts, outcome"
"""As `_entry` reads them."""

_INSERT = """
    INSERT OR REPLACE INTO requests
        (request_id, owner, body, picture, dops, accepted_at, attempts)
        VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_START = """
    UPDATE requests SET attempts = ?, stage = ?, runs = 1
        WHERE request_id = ? AND finished_at IS NULL
"""
_END = """
    UPDATE requests SET finished_at = ?, attempts = ?, outcome = ?, runs = 0, picture = NULL
        WHERE request_id = ?
"""

_dops = TypeAdapter(tuple[int, ...])
_ended = TypeAdapter(Ended)


class SqliteJournal:
    """Requests in an SQLite file with a write-ahead log. See `Journal` for the methods.

    Parameters
    ----------
    path : path-like
        The file; its directory must be there. It must lie on a disk of the machine, not on a
        network file system, on which SQLite's log is not safe.

    Raises
    ------
    JournalError
        Where it cannot be opened, belongs to a running control plane, or is no journal of
        this release.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        with self._told():
            Path(path).touch(mode=0o600)  # prompts are nobody else's affair; its log takes the mode
            self._connection = sqlite3.connect(
                self._path,
                timeout=_LOCK_TIMEOUT_S,
                isolation_level=None,  # transactions begin where this says so
                check_same_thread=False,
            )
        try:
            with self._told():
                self._open()
        except JournalError:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<SqliteJournal {self._path}>"

    def begin_life(self) -> Sequence[Entry]:
        """See `Journal.begin_life`."""
        with self._told(), self._transaction():
            self._connection.execute(
                "UPDATE requests SET restarts = restarts + 1, runs = 0"
                " WHERE finished_at IS NULL AND runs"
            )
        query = (
            f"SELECT {_COLUMNS}, picture FROM requests WHERE finished_at IS NULL ORDER BY sequence"
        )
        with self._told():
            rows = self._connection.execute(query)
            return [_with_picture(_entry(row[:-1]), row[-1]) for row in rows]

    def apply(self, changes: Sequence[Change]) -> None:
        """See `Journal.apply`."""
        with self._told(), self._transaction():
            for change in changes:
                self._connection.execute(*_statement(change))

    def find(self, request_ids: Iterable[str]) -> dict[str, Entry]:
        """See `Journal.find`."""
        wanted = list(request_ids)
        found: dict[str, Entry] = {}
        with self._told():
            for first in range(0, len(wanted), _IDS_AT_ONCE):
                some = wanted[first : first + _IDS_AT_ONCE]
                marks = ", ".join("?" * len(some))
                query = f"SELECT {_COLUMNS} FROM requests WHERE request_id IN ({marks})"
                for entry in map(_entry, self._connection.execute(query, some)):
                    found[entry.request_id] = entry
        return found

    def page(self, page: Page) -> Sequence[Entry]:
        """See `Journal.page`."""
        conditions: list[tuple[str, Any]] = []
        if page.ended is not None:
            conditions.append(("(finished_at IS NOT NULL) = ?", page.ended))
        if page.owner is not None:
            conditions.append(("owner = ?", page.owner))
        if page.after is not None:
            beyond = "sequence < ?" if page.newest_first else "sequence > ?"
            conditions.append((beyond, self._sequence(page.after)))
        where = " AND ".join(text for text, _ in conditions) or "1"
        order = "DESC" if page.newest_first else "ASC"
        query = f"SELECT {_COLUMNS} FROM requests WHERE {where} ORDER BY sequence {order} LIMIT ?"
        values = [*(value for _, value in conditions), page.limit]
        with self._told():
            rows = self._connection.execute(query, values)
            return [_entry(row) for row in rows]

    def expired(self, before: float, limit: int) -> Sequence[str]:
        """See `Journal.expired`."""
        query = "SELECT request_id FROM requests WHERE finished_at < ? ORDER BY finished_at LIMIT ?"
        with self._told():
            return [row[0] for row in self._connection.execute(query, (before, limit))]

    def close(self) -> None:
        """See `Journal.close`."""
        self._connection.close()

    def _open(self) -> None:
        for setting in _SETTINGS:
            self._connection.execute(setting)
        with self._transaction():
            [version] = self._connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA_VERSION):
                cause = f"is of version {version}, this release knows version {SCHEMA_VERSION}"
                raise JournalError(self._path, cause)
            if version == 0:
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _sequence(self, request_id: str) -> int:
        query = "SELECT sequence FROM requests WHERE request_id = ?"
        with self._told():
            row = self._connection.execute(query, (request_id,)).fetchone()
        if row is None:
            raise UnknownRequest(request_id)
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors as our own."""
        try:
            yield
        except sqlite3.OperationalError as error:
            locked = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            cause = "is in use by another control plane" if locked else str(error)
            raise JournalError(self._path, cause) from None
        except (sqlite3.Error, OSError) as error:
            raise JournalError(self._path, str(error)) from None
        except ValidationError as error:
            raise JournalError(self._path, f"holds what is no request ({error})") from None


def _statement(change: Change) -> tuple[str, tuple[Any, ...]]:
    """What makes a change."""
    match change:
        case Accepted(entry):
            return _INSERT, _values(entry)
        case Started():
            return _START, (change.attempt, str(change.stage), change.request_id)
        case Ended():
            outcome = _ended.dump_json(change).decode()
            return _END, (change.finished_at, change.attempts, outcome, change.request_id)
        case Forgotten():
            return "DELETE FROM requests WHERE request_id = ?", (change.request_id,)


def _values(entry: Entry) -> tuple[Any, ...]:
    request = entry.request
    return (
        entry.request_id,
        entry.owner,
        request.without_image_data().model_dump_json(),
        request.image.data if request.image is not None else None,
        _dops.dump_json(entry.dops).decode(),
        entry.accepted_at,
        entry.attempts,
    )


def _entry(row: Sequence[Any]) -> Entry:
    body, owner, dops, accepted_at, attempts, stage, restarts, outcome = row
    entry = Entry(
        request=GenerationRequest.model_validate_json(body),
        owner=owner,
        dops=_dops.validate_json(dops),
        accepted_at=accepted_at,
        attempts=attempts,
        stage=None if stage is None else Stage(stage),
        restarts=restarts,
    )
    return entry if outcome is None else _ended.validate_json(outcome).of(entry)


def _with_picture(entry: Entry, picture: bytes | None) -> Entry:
    """The entry with its picture, or with the word that it is damaged: others are not."""
    mention = entry.request.image
    if mention is None:
        return entry
    try:
        image = InputImage.parse(picture or b"")
    except InvalidRequest as error:
        return replace(entry, damage=f"its picture is damaged ({error})")
    if image != mention:
        return replace(entry, damage=f"its picture is damaged ({image} instead of {mention})")
    return replace(entry, request=entry.request.model_copy(update={"image": image}))
