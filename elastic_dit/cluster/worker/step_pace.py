"""Which step boundaries of a run are worth a message to the control plane."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["StepPace"]


class StepPace:
    """The first boundary, and after it one at most every `interval_s`; not the last.

    A step of a small model takes some ten milliseconds. A message for each cost a tenth of the
    time of the whole request: the engine's thread waits for the event loop at every one, and they
    take the caches from each other. The control plane counts with means, and a step may be
    reported late but not early, so it loses nothing by it. The last step is told by the end of
    the stage, which would have to wait behind a message of its own.

    Parameters
    ----------
    interval_s : float
        Least time between two messages, seconds; 0 lets all boundaries be told.
    clock : callable
        Seconds on a monotonic clock.

    Examples
    --------
    >>> times = iter([0.0, 0.3, 1.2])
    >>> pace = StepPace(1.0, clock=lambda: next(times))
    >>> [pace.tells(step, total_steps=4) for step in (1, 2, 3, 4)]
    [True, False, True, False]
    """

    def __init__(
        self, interval_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._told_at: float | None = None

    def __repr__(self) -> str:
        return f"StepPace({self._interval_s})"

    def tells(self, step: int, total_steps: int) -> bool:
        """Whether to tell of this boundary."""
        if step == total_steps:
            return False
        now = self._clock()
        if self._told_at is not None and now - self._told_at < self._interval_s:
            return False
        self._told_at = now
        return True

    def restart(self) -> None:
        """Tell of the next boundary, whenever it is."""
        self._told_at = None
