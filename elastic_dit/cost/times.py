"""A cost model as the clock that dispatch policies ask."""

from __future__ import annotations

from elastic_dit.cost.model import CostModel
from elastic_dit.errors import ConfigError
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["CostTimes"]

_MOST_REMEMBERED = 10_000
"""Answers kept; a server that sees ever new shapes must not grow for ever."""


class CostTimes:
    """`elastic_dit.control.view.StageTimes` on top of a `CostModel`; answers are remembered.

    Parameters
    ----------
    cost : CostModel

    Examples
    --------
    >>> from elastic_dit.cost import read_stage_latencies
    >>> CostTimes(read_stage_latencies())
    <CostTimes <TableCost H800>>
    """

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._known: dict[tuple[object, ...], float | None] = {}

    def __repr__(self) -> str:
        return f"<CostTimes {self.cost!r}>"

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """Seconds of a whole stage, of *one step* for the DiT.

        None for a DoP the request may not run at, and where model or GPU kind is not profiled.
        """
        shape = (request.model, request.width, request.height, request.num_frames)
        steps = 0 if stage is Stage.DIT else request.num_inference_steps
        key = (*shape, steps, stage, dop, kind)
        if key not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._ask(request, stage, dop, kind or None)
        return self._known[key]

    def _ask(
        self, request: GenerationRequest, stage: Stage, dop: int, kind: str | None
    ) -> float | None:
        try:
            if stage is not Stage.DIT:
                return self.cost.stage_seconds(request, stage, dop, kind)
            if dop not in self.cost.allowed_dops(request):
                return None
            return self.cost.step_seconds(request, dop, kind)
        except ConfigError:
            return None
