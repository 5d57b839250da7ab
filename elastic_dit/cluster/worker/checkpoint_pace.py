"""At which step boundaries a run hands a snapshot over."""

from __future__ import annotations

from collections.abc import Callable

from elastic_dit.engine.protocol import Checkpoint, Payload

__all__ = ["CheckpointPace"]


class CheckpointPace:
    """Every so many steps of the request, counted from its first.

    Parameters
    ----------
    every : int
        Steps between two snapshots; 0 for none.
    take : callable
        See `Checkpoint`.
    since : int or None
        Steps done when the run began; None for those of the first boundary.

    Examples
    --------
    >>> pace = CheckpointPace(4, take=lambda payload, step: None, since=2)
    >>> [step for step in range(3, 13) if pace.order(step, total_steps=12)]
    [4, 8]
    """

    def __init__(
        self, every: int, take: Callable[[Payload, int], None], since: int | None = None
    ) -> None:
        self._every = every
        self._order = Checkpoint(take)
        self._done = since
        self._ordered_at: int | None = None

    def __repr__(self) -> str:
        return f"<CheckpointPace every {self._every} steps, {self._done} done>"

    def order(self, step: int, total_steps: int) -> Checkpoint | None:
        """The order for this boundary, if it is due."""
        before, self._done = self._done, step
        if not self._every or before is None or step >= total_steps:
            return None
        if step // self._every <= before // self._every:
            return None
        self._ordered_at = step
        return self._order

    def ordered_at(self, step: int) -> bool:
        """Whether the boundary after `step` steps had one: its state is kept under that name."""
        return self._ordered_at == step
