"""At which step boundaries a run hands a snapshot over."""

from __future__ import annotations

import time
from collections.abc import Callable

from elastic_dit.engine.protocol import Checkpoint, Payload

__all__ = ["CheckpointPace"]


class CheckpointPace:
    """Every so many steps of the request, counted from its first, but not more often than that.

    Parameters
    ----------
    every : int
        Steps between two snapshots; 0 for none.
    take : callable
        See `Checkpoint`.
    since : int or None
        Steps done when the run began; None for those of the first boundary.
    interval_s : float
        Least time before the first snapshot and between two, seconds; one that would come too
        early is taken at the first boundary that does not.
    clock : callable
        Seconds on a monotonic clock.

    Examples
    --------
    >>> pace = CheckpointPace(4, take=lambda payload, step: None, since=2)
    >>> [step for step in range(3, 13) if pace.order(step, total_steps=12)]
    [4, 8]
    >>> seconds = iter(range(100))
    >>> pace = CheckpointPace(
    ...     4, lambda payload, step: None, 0, interval_s=6.0, clock=lambda: next(seconds))
    >>> [step for step in range(1, 21) if pace.order(step, total_steps=20)]
    [6, 12, 18]
    """

    def __init__(
        self,
        every: int,
        take: Callable[[Payload, int], None],
        since: int | None = None,
        *,
        interval_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every = every
        self._interval_s = interval_s
        self._clock = clock
        self._order = Checkpoint(take)
        self._done = since
        self._is_due = False
        self._ordered_at: int | None = None
        self._last_s = clock()

    def __repr__(self) -> str:
        return f"<CheckpointPace every {self._every} steps, {self._done} done>"

    def order(self, step: int, total_steps: int) -> Checkpoint | None:
        """The order for this boundary, if it is due."""
        before, self._done = self._done, step
        if not self._every or before is None or step >= total_steps:
            return None
        self._is_due |= step // self._every > before // self._every
        now = self._clock()
        if not self._is_due or now - self._last_s < self._interval_s:
            return None
        self._is_due = False
        self._last_s, self._ordered_at = now, step
        return self._order

    def ordered_at(self, step: int) -> bool:
        """Whether the boundary after `step` steps had one: its state is kept under that name."""
        return self._ordered_at == step
