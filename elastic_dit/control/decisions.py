"""The log of decisions: what was decided, when and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from elastic_dit.state import GpuId

__all__ = ["PLACEMENT", "Decision", "DecisionLog"]

PLACEMENT = frozenset(
    {
        "plan",
        "load",
        "load failed",
        "drop",
        "join",
        "lost",
        "ask machines",
        "release machine",
        "machine leaves",
        "move away",
    }
)
"""What is decided and happens slowly. Fast decisions are a hundred times as many: in the same log
they would push these out."""
_PLACEMENT_KEPT = 200


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    what : str
        ``start``, ``resize``, ``preempt``, ``prefetch``, ``abort``, ``retry``, ``fail`` …, or
        one of `PLACEMENT`.
    subject : str
        Request id, or stage, or node.
    gpus : tuple of int
    reason : str
    """

    at: float
    what: str
    subject: str
    gpus: tuple[GpuId, ...]
    reason: str

    def __str__(self) -> str:
        where = f" on {','.join(map(str, self.gpus))}" if self.gpus else ""
        return f"{self.at:.3f} {self.what} {self.subject}{where}: {self.reason}"


class DecisionLog:
    """The last decisions, oldest first.

    Attributes
    ----------
    total : int
        How many there ever were.
    placement : deque of Decision
        The last of those in `PLACEMENT`, which stay longer.

    Examples
    --------
    >>> log = DecisionLog(kept=1)
    >>> log.add(0.5, "start", "r1", (0,), "first in line")
    >>> log.add(2.0, "start", "r2", (1, 2), "first in line")
    >>> [str(decision) for decision in log]
    ['2.000 start r2 on 1,2: first in line']
    >>> log.total
    2
    """

    def __init__(self, kept: int) -> None:
        self._kept: deque[Decision] = deque(maxlen=kept)
        self.placement: deque[Decision] = deque(maxlen=_PLACEMENT_KEPT)
        self.total = 0

    def __repr__(self) -> str:
        return f"<DecisionLog {len(self._kept)} of {self.total}>"

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._kept)

    def add(self, at: float, what: str, subject: str, gpus: tuple[GpuId, ...], reason: str) -> None:
        """Append one."""
        decision = Decision(at, what, subject, gpus, reason)
        self._kept.append(decision)
        if what in PLACEMENT:
            self.placement.append(decision)
        self.total += 1
