"""The seam between an engine's shell and whatever carries its messages, and a fake beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.events import Event
from elastic_dit.state import ArtifactRef

__all__ = ["Channel", "FakeChannel"]


class Channel(Protocol):
    """What an engine's shell needs of its surroundings. Used from the event loop only."""

    def send(self, event: Event) -> None:
        """Tell the control plane, in order, without waiting."""
        ...

    def publish(self, request_id: str, result: Any) -> None:
        """Lay down a finished result where its client can fetch it."""
        ...

    def give_up(self, reason: str) -> None:
        """End this process: its device is no longer usable. A fresh one takes its place."""
        ...

    async def fetch(self, address: str, ref: ArtifactRef) -> Encoded | None:
        """An artifact of another engine, None where that no longer holds it.

        Raises
        ------
        OSError
            Where the other engine cannot be reached.
        """
        ...


class FakeChannel:
    """A channel into lists, for tests.

    Attributes
    ----------
    events : list of Event
        What was sent.
    results : dict of str to object
        What was published.
    reasons : list of str
        Reasons for giving up.
    source : callable, optional
        Answers fetches: `(address, ref) -> Encoded or None`; it may raise OSError.
    """

    def __init__(self, source: Callable[[str, ArtifactRef], Encoded | None] | None = None) -> None:
        self.events: list[Event] = []
        self.results: dict[str, Any] = {}
        self.reasons: list[str] = []
        self.fetched: list[tuple[str, ArtifactRef]] = []
        self.source = source

    def __repr__(self) -> str:
        return f"<FakeChannel {len(self.events)} events, {len(self.results)} results>"

    def send(self, event: Event) -> None:
        """Append to `events`."""
        self.events.append(event)

    def publish(self, request_id: str, result: Any) -> None:
        """Keep in `results`."""
        self.results[request_id] = result

    def give_up(self, reason: str) -> None:
        """Keep in `reasons`."""
        self.reasons.append(reason)

    async def fetch(self, address: str, ref: ArtifactRef) -> Encoded | None:
        """Ask `source`; without one nothing is held anywhere."""
        self.fetched.append((address, ref))
        return None if self.source is None else self.source(address, ref)
