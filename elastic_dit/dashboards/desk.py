"""Feeds the page from the control plane: remembers always, describes only while somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from elastic_dit.control.controller import Controller
from elastic_dit.dashboards.board import Board, build_board
from elastic_dit.dashboards.history import History
from elastic_dit.events import Command, Event

__all__ = ["DashboardDesk", "Watched"]

FRESH_S = 1.0
"""Age up to which one board serves everybody who asks, seconds."""
LOOKED_AT_S = 10.0
"""How long after the last look boards are still made on the tick, seconds."""


class Watched(Protocol):
    """What is looked at: the control plane, as far as the page needs it."""

    @property
    def controller(self) -> Controller:
        """The one in force."""
        ...

    def clock(self) -> float:
        """Seconds on the control plane's clock."""
        ...

    def wall_clock(self, at: float) -> float:
        """A time on it as seconds since the epoch."""
        ...


class DashboardDesk:
    """One for all viewers.

    Parameters
    ----------
    watched : Watched

    Attributes
    ----------
    history : History
    """

    def __init__(self, watched: Watched) -> None:
        self.history = History()
        self._watched = watched
        self._board: Board | None = None
        self._built_at = self._looked_at = float("-inf")

    def __repr__(self) -> str:
        return f"<DashboardDesk {self.history!r}>"

    def note(
        self, controller: Controller, event: Event, commands: Iterable[Command], now: float
    ) -> None:
        """See `History.note`."""
        self.history.note(controller, event, commands, now)

    def tick(self) -> None:
        """Let time pass; while somebody looks, describe how things are."""
        now = self._watched.clock()
        self.history.tick(self._watched.controller, now)
        if now - self._looked_at < LOOKED_AT_S:
            self._build(now)

    def look(self) -> Board:
        """How things are, or were at most `FRESH_S` ago: one board for everybody until the next."""
        now = self._looked_at = self._watched.clock()
        if self._board is None or now - self._built_at > FRESH_S:
            return self._build(now)
        return self._board

    @property
    def to_wall(self) -> float:
        """What to add to the control plane's clock for seconds since the epoch."""
        return self._watched.wall_clock(0.0)

    def _build(self, now: float) -> Board:
        self._built_at = now
        self._board = build_board(self._watched.controller, self.history, now, self.to_wall)
        return self._board
