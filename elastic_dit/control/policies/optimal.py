"""The optimal DoP of a request, as policies see its step times."""

from __future__ import annotations

from elastic_dit.control.view import ClusterView
from elastic_dit.cost import step_time_cuts
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["known_step_seconds", "optimal_dop_of", "step_seconds"]

_UNKNOWN_STEP_S = 1.0
"""Step time of what was never seen: any figure will do to rank it among its like."""


def known_step_seconds(view: ClusterView, request: GenerationRequest) -> dict[int, float]:
    """Seconds of one step by DoP, up to a node's GPUs, as far as they are known without a gap."""
    known: dict[int, float] = {}
    dop = 1
    while dop <= view.config.slots_per_node:
        seconds = view.times.seconds(request, Stage.DIT, dop)
        if seconds is None:
            break
        known[dop] = seconds
        dop *= 2
    return known


def optimal_dop_of(view: ClusterView, request: GenerationRequest) -> int:
    """`B` of DDiT §4.2.3; 1 while nothing is known.

    As `elastic_dit.cost.optimal_dop`, which asks a cost model instead of a view.
    """
    cuts = step_time_cuts(known_step_seconds(view, request))
    best = max(cuts, key=lambda dop: cuts[dop], default=1)
    return best if cuts.get(best, 0.0) > 0 else 1


def step_seconds(view: ClusterView, request: GenerationRequest, dop: int) -> float:
    """Seconds of one step at a DoP."""
    return view.times.seconds(request, Stage.DIT, dop) or _UNKNOWN_STEP_S
