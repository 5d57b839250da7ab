"""The optimal DoP of a request, as policies see its step times."""

from __future__ import annotations

from elastic_dit.control.view import ClusterView
from elastic_dit.cost import step_time_cuts
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["OptimalDops"]

_UNKNOWN_STEP_S = 1.0
"""Step time of what was never seen: any figure will do to rank it among its like."""

_Shape = tuple[str, int, int, int]


class OptimalDops:
    """Step times and `B` of DDiT §4.2.3 for one look at the cluster, each shape asked for once.

    As `elastic_dit.cost.optimal_dop`, which asks a cost model instead of a view.

    Parameters
    ----------
    view : ClusterView
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._steps: dict[_Shape, dict[int, float]] = {}
        self._optimal: dict[_Shape, int] = {}

    def __repr__(self) -> str:
        return f"<OptimalDops of {len(self._steps)} shapes>"

    def step_s(self, request: GenerationRequest, dop: int) -> float:
        """Seconds of one step at a DoP."""
        return self._known(_shape(request), request).get(dop, _UNKNOWN_STEP_S)

    def of(self, request: GenerationRequest) -> int:
        """The DoP whose doubling cuts the step time most; 1 while nothing is known."""
        shape = _shape(request)
        found = self._optimal.get(shape)
        if found is None:
            cuts = step_time_cuts(self._known(shape, request))
            best = max(cuts, key=lambda dop: cuts[dop], default=1)
            found = self._optimal[shape] = best if cuts.get(best, 0.0) > 0 else 1
        return found

    def _known(self, shape: _Shape, request: GenerationRequest) -> dict[int, float]:
        """Step times by DoP, up to a node's GPUs, as far as they are known without a gap."""
        known = self._steps.get(shape)
        if known is None:
            known = self._steps[shape] = {}
            dop = 1
            while dop <= self._view.config.slots_per_node:
                seconds = self._view.times.seconds(request, Stage.DIT, dop)
                if seconds is None:
                    break
                known[dop] = seconds
                dop *= 2
        return known


def _shape(request: GenerationRequest) -> _Shape:
    return (request.model, request.width, request.height, request.num_frames)
