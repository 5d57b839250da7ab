"""Every stage on every GPU."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_dit.control.placement.assign import new_plan, usable
from elastic_dit.control.placement.policy import register_placement
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import PlacementPlan

__all__ = ["Colocated"]


class Colocated:
    """Every GPU holds every stage of every model, except what it could not load.

    Decoding then follows denoising in place, and all GPUs can form groups; it takes memory for
    all stages on each.

    Parameters
    ----------
    models : sequence of str
        Models to serve.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._keys = frozenset(StageKey(model, stage) for model in models for stage in Stage)

    def __repr__(self) -> str:
        return f"Colocated({len(self._keys)} stages)"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:  # noqa: ARG002
        """Everything everywhere."""
        gpus = usable(snapshot)
        residency = {
            gpu.gpu: frozenset(
                key for key in self._keys if f"{key.model}/{key.stage}" not in gpu.failed
            )
            for gpu in gpus
        }
        if residency == {gpu.gpu: frozenset(gpu.wanted) for gpu in gpus}:
            return None
        return new_plan(snapshot, residency, f"all stages on {len(residency)} GPUs")


register_placement("colocated", lambda _, models: Colocated(models))
