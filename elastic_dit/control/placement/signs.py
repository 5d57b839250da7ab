"""Signs that a stage has too few GPUs, or too many: DisagFusion's Algorithm 1, lines 11 to 17."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_dit.config import PlacementConfig
from elastic_dit.control.snapshot import ClusterSnapshot, QueueSnapshot
from elastic_dit.request import Stage

__all__ = ["StageSigns", "read_signs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSigns:
    """One stage, over all models.

    Attributes
    ----------
    utilisation : float
        Of the GPUs that serve it, over the window (the paper's u).
    waiting : int
        Requests in line (q).
    delay_s : float
        Their mean wait (d).
    delays_grow : bool
        Whether that wait grows.

    Examples
    --------
    >>> signs = StageSigns(utilisation=0.97, waiting=9, delay_s=80.0, delays_grow=True)
    >>> signs.is_overloaded(PlacementConfig()), signs.is_idle(PlacementConfig())
    (True, False)
    """

    utilisation: float
    waiting: int
    delay_s: float
    delays_grow: bool

    def is_overloaded(self, config: PlacementConfig) -> bool:
        """``u > U_high and q > Q_high and d grows``: only where all three agree."""
        return (
            self.utilisation > config.scale_out_utilisation
            and self.waiting > config.scale_out_queue_length
            and self.delays_grow
        )

    def is_idle(self, config: PlacementConfig) -> bool:
        """``u < U_low and q = 0``."""
        return self.utilisation < config.scale_in_utilisation and not self.waiting

    def __str__(self) -> str:
        grow = ", longer and longer" if self.delays_grow else ""
        return f"busy {self.utilisation:.0%}, {self.waiting} wait {self.delay_s:.0f} s{grow}"


def read_signs(snapshot: ClusterSnapshot) -> dict[Stage, StageSigns]:
    """The signs of every stage that some GPU serves."""
    by_stage: dict[Stage, list[QueueSnapshot]] = {}
    for queue in snapshot.queues:
        if queue.serving:
            by_stage.setdefault(queue.key.stage, []).append(queue)
    return {stage: _over_models(by_stage[stage]) for stage in Stage if stage in by_stage}


def _over_models(queues: list[QueueSnapshot]) -> StageSigns:
    serving = sum(queue.serving for queue in queues)
    waiting = sum(queue.waiting for queue in queues)
    longest = max(queues, key=lambda queue: queue.delay_s)
    return StageSigns(
        utilisation=sum(queue.utilisation * queue.serving for queue in queues) / serving,
        waiting=waiting,
        delay_s=longest.delay_s,
        delays_grow=any(queue.waiting and queue.delay_growth > 0 for queue in queues),
    )
