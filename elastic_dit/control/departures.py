"""Machines on their way out: retiring, then drained, then gone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from enum import StrEnum

__all__ = ["Departure", "Departures"]


class Departure(StrEnum):
    """How far a machine is on its way out."""

    RETIRING = "retiring"
    """It takes no new work; what it has goes on, or moves away."""
    DRAINED = "drained"
    """It holds nothing any more and may be closed; a plan may still keep it."""
    LEAVING = "leaving"
    """It is being closed, and no plan can keep it."""


class Departures:
    """Which machines are on their way out, how far, and why.

    Examples
    --------
    >>> departures = Departures()
    >>> departures.plan(("n1",), "idle", needed=())
    >>> departures.plan((), "busy elsewhere", needed=("n0",))
    >>> departures.drained("n1")
    >>> departures.leave("n1"), departures.leave("n0")
    (True, False)
    >>> departures.plan((), "needed after all", needed=("n0", "n1"))
    >>> departures.get("n1"), departures.reason("n1")
    (<Departure.LEAVING: 'leaving'>, 'idle')
    """

    def __init__(self) -> None:
        self._stages: dict[str, Departure] = {}
        self._reasons: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Departures {', '.join(f'{n} {stage}' for n, stage in self._stages.items())}>"

    def __contains__(self, node: object) -> bool:
        return node in self._stages

    def __len__(self) -> int:
        return len(self._stages)

    def get(self, node: str) -> Departure | None:
        """How far a machine is; None for one that stays."""
        return self._stages.get(node)

    def reason(self, node: str) -> str:
        """Why it goes."""
        return self._reasons[node]

    def plan(self, retire: Collection[str], reason: str, needed: Collection[str]) -> None:
        """Take over what a new plan says.

        Parameters
        ----------
        retire : collection of str
            Machines that shall go. Those on their way out already stay so.
        reason : str
        needed : collection of str
            Machines that the plan counts on: they stay, unless it retires them.
        """
        for node in set(needed).difference(retire):
            if self._stages.get(node, Departure.LEAVING) is not Departure.LEAVING:
                self.forget(node)
        for node in retire:
            if node not in self._stages:
                self._stages[node] = Departure.RETIRING
                self._reasons[node] = reason

    def retiring(self, nodes: AbstractSet[str]) -> Iterator[str]:
        """Machines that are not drained yet; those that have left meanwhile are forgotten."""
        for node, stage in tuple(self._stages.items()):
            if node not in nodes:
                self.forget(node)
            elif stage is Departure.RETIRING:
                yield node

    def drained(self, node: str) -> None:
        """A retiring machine holds nothing any more."""
        self._stages[node] = Departure.DRAINED

    def leave(self, node: str) -> bool:
        """Let a machine be closed; False for one that is not drained."""
        if self._stages.get(node) is not Departure.DRAINED:
            return False
        self._stages[node] = Departure.LEAVING
        return True

    def forget(self, node: str) -> None:
        """It stays, or has left."""
        del self._stages[node], self._reasons[node]
