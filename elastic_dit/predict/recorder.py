"""Telemetry: what the split in force reached, as an example to learn from."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.predict.examples import Example, Outcome, Situation
from elastic_dit.predict.split import Split

__all__ = ["Recorder"]


@dataclass(frozen=True, slots=True)
class _Began:
    at_s: float
    completed: int
    latency_sum_s: float


class Recorder:
    """Makes one example of every stretch of time in which the split stayed the same.

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
    >>> recorder.look(0.0, situation, split, completed=0, latency_sum_s=0.0) is None
    True
    >>> example = recorder.look(60.0, situation, split, completed=30, latency_sum_s=90.0)
    >>> example.seen
    ((Split(0:1:0), Outcome(throughput_hz=0.5, latency_s=3.0)),)
    """

    def __init__(self, window_s: float, least: int = 20) -> None:
        self._window_s = window_s
        self._least = least
        self._split: Split | None = None
        self._began = _Began(0.0, 0, 0.0)

    def __repr__(self) -> str:
        return f"<Recorder of {self._split} since {self._began.at_s:g} s>"

    def look(
        self, now: float, situation: Situation, split: Split, completed: int, latency_sum_s: float
    ) -> Example | None:
        """Look at the running cluster.

        Parameters
        ----------
        now : float
            Seconds.
        situation : Situation
            What is asked of it at present.
        split : Split
            In force.
        completed : int
            Requests completed so far, ever.
        latency_sum_s : float
            Their latencies in sum, seconds.

        Returns
        -------
        Example or None
            At the end of a stretch.
        """
        began = self._began
        if split == self._split and now - began.at_s < self._window_s:
            return None
        example = None
        count = completed - began.completed
        if split == self._split and count >= self._least:
            latency_s = (latency_sum_s - began.latency_sum_s) / count
            outcome = Outcome(count / (now - began.at_s), latency_s)
            example = Example(situation, ((split, outcome),))
        self._split, self._began = split, _Began(now, completed, latency_sum_s)
        return example
