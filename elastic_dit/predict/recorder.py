"""Telemetry: what the split in force reached, as an example to learn from."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.predict.examples import Example, Outcome, Situation
from elastic_dit.predict.split import Split

__all__ = ["Recorder"]


@dataclass(slots=True)
class _Stretch:
    """Time in which one split was in force."""

    split: Split | None
    since: float
    completed: int
    looked_at: float
    live_s: float = 0.0


class Recorder:
    """Makes one example of every stretch of time in which the split stayed the same.

    Latency follows from the requests that were there and those that left (Little's law).

    Parameters
    ----------
    window_s : float
        Length of such a stretch, seconds.
    least : int
        Requests that must be completed in it; fewer say nothing.

    Examples
    --------
    >>> from elastic_dit.predict.workload import Workload
    >>> from elastic_dit.request import Stage
    >>> situation = Situation(Workload(rate_hz=1.0, stage_seconds={Stage.DIT: 1.0}), {"": 1})
    >>> split = Split.of({}, {"": 1}, {})
    >>> recorder = Recorder(window_s=60.0, least=20)
    >>> recorder.look(0.0, situation, split, completed=0, live=3) is None
    True
    >>> recorder.look(60.0, situation, split, completed=30, live=3).seen
    ((Split(0:1:0), Outcome(throughput_hz=0.5, latency_s=6.0)),)
    """

    def __init__(self, window_s: float, least: int = 20) -> None:
        self._window_s = window_s
        self._least = least
        self._stretch = _Stretch(None, 0.0, 0, 0.0)

    def __repr__(self) -> str:
        return f"<Recorder of {self._stretch.split} since {self._stretch.since:g} s>"

    def look(
        self,
        now: float,
        situation: Situation | None,
        split: Split | None,
        completed: int,
        live: int,
    ) -> Example | None:
        """Look at the running cluster.

        Parameters
        ----------
        now : float
            Seconds.
        situation : Situation or None
            What is asked of it at present; None where that is not known.
        split : Split or None
            In force; None while none is, which ends a stretch as another would.
        completed : int
            Requests completed so far, ever.
        live : int
            Requests accepted and not ended.

        Returns
        -------
        Example or None
            At the end of a stretch.
        """
        stretch = self._stretch
        stretch.live_s += live * (now - stretch.looked_at)
        stretch.looked_at = now
        if split == stretch.split and now - stretch.since < self._window_s:
            return None
        self._stretch = _Stretch(split, now, completed, now)
        count = completed - stretch.completed
        if split is None or split != stretch.split or situation is None:
            return None
        if count < self._least or not stretch.live_s:
            return None
        outcome = Outcome(count / (now - stretch.since), stretch.live_s / count)
        return Example(situation, ((split, outcome),))
