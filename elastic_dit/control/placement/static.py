"""GPUs in a fixed ratio."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_dit.config import StageRatio
from elastic_dit.control.placement.assign import Exclusive, new_plan, shares_of, usable
from elastic_dit.control.placement.policy import register_placement
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.request import Stage
from elastic_dit.state import PlacementPlan

__all__ = ["StaticRatio"]


class StaticRatio:
    """GPUs in a fixed ratio E:T:D, moving as few stages as can be when GPUs come or go.

    Parameters
    ----------
    ratio : StageRatio
    models : sequence of str
        Models to serve; a GPU holds its stage of each of them.
    """

    def __init__(self, ratio: StageRatio, models: Sequence[str]) -> None:
        self._ratio = ratio
        self._assign = Exclusive(models)

    def __repr__(self) -> str:
        ratio = self._ratio
        return f"StaticRatio({ratio.encoder}:{ratio.dit}:{ratio.decoder})"

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:  # noqa: ARG002
        """The ratio over the GPUs there are."""
        gpus = usable(snapshot)
        residency = self._assign.residency(gpus, shares_of(self._ratio, len(gpus)))
        if all(residency[gpu.gpu] == frozenset(gpu.wanted) for gpu in gpus):
            return None
        held = [{key.stage for key in keys} for keys in residency.values()]
        counts = (sum(stage in stages for stages in held) for stage in Stage)
        text = f"E:T:D = {':'.join(map(str, counts))} on {len(gpus)} GPUs"
        return new_plan(snapshot, residency, text)


register_placement("static", lambda config, models: StaticRatio(config.ratio, models))
