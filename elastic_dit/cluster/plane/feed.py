"""Progress to clients: every change of phase, steps at a bounded rate, places in line sparingly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from elastic_dit.cluster.reports import Outcome, Report
from elastic_dit.state import Phase, Progress

__all__ = ["ProgressFeed"]

_PRECISE_PLACES = 10
"""Every move is told from this place in line on; further back, tenths of the way."""


@dataclass(slots=True)
class _Told:
    """What was last told of a request."""

    phase: Phase
    attempt: int
    step: int
    place: int
    at: float


class ProgressFeed:
    """Decides which reports are worth sending, and sends them.

    In a queue of n, a request is told of its place about ``10 + 22 log10(n)`` times on its way to
    the front, however often the queue moves.

    Parameters
    ----------
    send : callable
        Takes a report and the ids of the clients it is for.
    interval_s : float
        Least time between two step reports of one request, seconds.
    """

    def __init__(self, send: Callable[[Report, Iterable[str]], None], interval_s: float) -> None:
        self._send = send
        self._interval_s = interval_s
        self._told: dict[str, _Told] = {}

    def __repr__(self) -> str:
        return f"<ProgressFeed of {len(self._told)} requests>"

    def __len__(self) -> int:
        return len(self._told)

    def offer(self, progress: Progress, clients: Iterable[str], now: float) -> bool:
        """Send a report of a live request, if it tells enough that is new.

        Parameters
        ----------
        progress : Progress
        clients : iterable of str
        now : float
            Seconds on the control plane's clock.

        Returns
        -------
        bool
            False where it was held back.
        """
        told = self._told.get(progress.request_id)
        if told is not None and not self._is_news(progress, told, now):
            return False
        self._told[progress.request_id] = _Told(
            progress.phase, progress.attempt, progress.step, progress.queue_position, now
        )
        self._send(Report(progress=progress), clients)
        return True

    def is_due(self, request_id: str, state: tuple[Phase, int], now: float) -> bool:
        """Whether a report would be sent now, its phase and attempt being `state`.

        Cheaper to know than the report is to make.
        """
        told = self._told.get(request_id)
        if told is None or (told.phase, told.attempt) != state:
            return True
        return now - told.at >= self._interval_s

    def has_moved(self, request_id: str, place: int) -> bool:
        """Whether a new place in line would be sent."""
        told = self._told.get(request_id)
        return told is None or has_moved(told.place, place)

    def end(self, progress: Progress, outcome: Outcome, clients: Iterable[str]) -> None:
        """Send the last report of a request."""
        self._told.pop(progress.request_id, None)
        self._send(Report(progress=progress, outcome=outcome), clients)

    def _is_news(self, progress: Progress, told: _Told, now: float) -> bool:
        if (progress.phase, progress.attempt) != (told.phase, told.attempt):
            return True
        if progress.step != told.step:
            return now - told.at >= self._interval_s
        return has_moved(told.place, progress.queue_position)


def has_moved(before: int, after: int) -> bool:
    """Whether a change of place in line is worth a message.

    >>> has_moved(3, 2), has_moved(100, 99), has_moved(100, 90)
    (True, False, True)
    """
    return abs(before - after) * _PRECISE_PLACES >= max(before, _PRECISE_PLACES)
