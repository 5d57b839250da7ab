"""The seam to whatever writes requests down, and a twin in memory beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from elastic_dit.errors import UnknownRequest
from elastic_dit.journal.entry import Accepted, Change, Ended, Entry, Forgotten

__all__ = ["Journal", "MemoryJournal", "Page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which entries to list.

    Attributes
    ----------
    limit : int
        Most entries.
    after : str or None
        Id of the last entry of the page before.
    newest_first : bool
        By the order of acceptance.
    ended : bool or None
        Only those that have ended, or have not.
    owner : str or None
        Only this owner's.
    """

    limit: int
    after: str | None = None
    newest_first: bool = True
    ended: bool | None = None
    owner: str | None = None

    def has(self, ended: bool, owner: str) -> bool:
        """Whether a request of that kind is on it.

        >>> Page(limit=1, ended=True).has(ended=False, owner="")
        False
        """
        return self.ended in (None, ended) and self.owner in (None, owner)


class Journal(Protocol):
    """Requests written down. Used by one thread at a time; every method may block.

    Each raises `JournalError` where the medium fails.
    """

    def begin_life(self) -> Sequence[Entry]:
        """What had not ended when the cluster went down, in order of acceptance.

        Counts a restart for each that ran. One whose picture cannot be read any more says so
        (`Entry.damage`). To be called once, first.
        """
        ...

    def apply(self, changes: Sequence[Change]) -> None:
        """Make changes, all or none; on return they survive a loss of power.

        A change of a request that is not there does nothing.
        """
        ...

    def find(self, request_ids: Iterable[str]) -> dict[str, Entry]:
        """Those of the requests that are there, by id."""
        ...

    def page(self, page: Page) -> Sequence[Entry]:
        """A part of the list.

        Raises
        ------
        UnknownRequest
            Where the page before ends with a request that is not there.
        """
        ...

    def expired(self, before: float, limit: int) -> Sequence[str]:
        """Ids of at most `limit` requests that ended before a time, the oldest end first."""
        ...

    def close(self) -> None:
        """Let go of the medium."""
        ...


class MemoryJournal:
    """A journal that lasts as long as the object, for tests.

    Attributes
    ----------
    error : Exception or None
        Raised by `apply` while set, as by a full disk.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._runs: set[str] = set()
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<MemoryJournal of {len(self._entries)} requests>"

    def begin_life(self) -> Sequence[Entry]:
        """See `Journal.begin_life`."""
        for request_id in self._runs:
            entry = self._entries[request_id]
            self._entries[request_id] = replace(entry, restarts=entry.restarts + 1)
        self._runs.clear()
        return [entry for entry in self._entries.values() if entry.finished_at is None]

    def apply(self, changes: Sequence[Change]) -> None:
        """See `Journal.apply`."""
        if self.error is not None:
            raise self.error
        for change in changes:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        if isinstance(change, Accepted):
            self._forget(change.entry.request_id)
            self._entries[change.entry.request_id] = change.entry
            return
        entry = self._entries.get(change.request_id)
        if entry is None or isinstance(change, Forgotten):
            self._forget(change.request_id)
        elif isinstance(change, Ended):
            self._entries[change.request_id] = change.of(entry)
            self._runs.discard(change.request_id)
        elif entry.finished_at is None:
            self._entries[change.request_id] = change.of(entry)
            self._runs.add(change.request_id)

    def _forget(self, request_id: str) -> None:
        self._entries.pop(request_id, None)
        self._runs.discard(request_id)

    def find(self, request_ids: Iterable[str]) -> dict[str, Entry]:
        """See `Journal.find`."""
        return {
            request_id: _listed(self._entries[request_id])
            for request_id in request_ids
            if request_id in self._entries
        }

    def page(self, page: Page) -> Sequence[Entry]:
        """See `Journal.page`."""
        if page.after is not None and page.after not in self._entries:
            raise UnknownRequest(page.after)
        entries = list(self._entries.values())
        if page.newest_first:
            entries.reverse()
        if page.after is not None:
            ids = [entry.request_id for entry in entries]
            entries = entries[ids.index(page.after) + 1 :]
        listed = [e for e in entries if page.has(e.finished_at is not None, e.owner)]
        return [_listed(entry) for entry in listed[: page.limit]]

    def expired(self, before: float, limit: int) -> Sequence[str]:
        """See `Journal.expired`."""
        over = [
            (entry.finished_at, entry.request_id)
            for entry in self._entries.values()
            if entry.finished_at is not None and entry.finished_at < before
        ]
        return [request_id for _, request_id in sorted(over)[:limit]]

    def close(self) -> None:
        """See `Journal.close`; the entries stay for the next life."""


def _listed(entry: Entry) -> Entry:
    return replace(entry, request=entry.request.without_image_data())
