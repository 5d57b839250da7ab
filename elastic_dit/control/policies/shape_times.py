"""What requests of one shape take at every DoP."""

from __future__ import annotations

import math

from elastic_dit.control.view import ClusterView, RequestView, StageTimes
from elastic_dit.cost import step_time_cuts
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["ShapeBook", "ShapeTimes"]

_DOPS = (1, 2, 4, 8, 16, 32, 64)
_UNKNOWN_STEP_S = 1.0
"""Step time of what was never seen: any figure will do to rank it among its like."""
_FRESH_S = 1.0
"""Step times that are observed are asked for anew after this long."""


class ShapeTimes:
    """What requests of one shape take at every DoP.

    Attributes
    ----------
    step_s : dict of int to float
        Seconds of one step by DoP, rising DoP; DoP 1 is always there.
    fastest_s : float
        The smallest of them.
    decode_s : float
        Seconds that follow the denoising.
    read_at : float
        When they were asked for, seconds on the control plane's clock.
    """

    __slots__ = ("_optimal", "_widest", "decode_s", "fastest_s", "read_at", "step_s")

    def __init__(self, request: GenerationRequest, times: StageTimes, read_at: float = 0.0) -> None:
        self.read_at = read_at
        self.step_s = {1: times.seconds(request, Stage.DIT) or _UNKNOWN_STEP_S}
        for dop in _DOPS[1:]:
            seconds = times.seconds(request, Stage.DIT, dop)
            if seconds is None:
                break
            self.step_s[dop] = seconds
        self.decode_s = times.seconds(request, Stage.DECODER) or 0.0
        self.fastest_s = min(self.step_s.values())
        self._widest: dict[float, int] = {}
        self._optimal: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<ShapeTimes {self.step_s[1]:.3g} s a step, DoP up to {max(self.step_s)}>"

    def widest(self, efficiency: float) -> int:
        """Largest DoP at which the GPUs do at least this part of their work at DoP 1."""
        found = self._widest.get(efficiency)
        if found is None:
            alone = self.step_s[1]
            found = self._widest[efficiency] = max(
                dop
                for dop, seconds in self.step_s.items()
                if dop == 1 or alone >= efficiency * dop * seconds
            )
        return found

    def optimal(self, most: int) -> int:
        """`B` of DDiT §4.2.3 up to so many GPUs: the DoP whose doubling cuts a step's time most.

        1 where none does. As `elastic_dit.cost.optimal_dop`, which asks a cost model.
        """
        found = self._optimal.get(most)
        if found is None:
            cuts = step_time_cuts({dop: s for dop, s in self.step_s.items() if dop <= most})
            best = max(cuts, key=lambda dop: cuts[dop], default=1)
            found = self._optimal[most] = best if cuts.get(best, 0.0) > 0 else 1
        return found


class ShapeBook:
    """Step times by shape, remembered from look to look.

    Attributes
    ----------
    read_at : float
        When the present ones were asked for, seconds on the control plane's clock.
    """

    def __init__(self) -> None:
        self.read_at = -math.inf
        self._times: dict[tuple[object, ...], ShapeTimes] = {}
        self._known: tuple[int | None, int] | None = None

    def __repr__(self) -> str:
        return f"<ShapeBook of {len(self._times)} shapes>"

    def begin(self, view: ClusterView, now: float) -> None:
        """A new look: forget what may have changed."""
        known = (view.widest, view.shapes_seen)
        stale = view.learns_times and now - self.read_at >= _FRESH_S
        if stale or self._known != known:
            self.read_at, self._known = now, known
            self._times.clear()

    def times(self, record: RequestView, view: ClusterView) -> ShapeTimes:
        """Of a request; those of equal shape share them."""
        shape = _shape_of(record)
        found = self._times.get(shape)
        if found is None:
            found = self._times[shape] = ShapeTimes(record.request, view.times, self.read_at)
        return found


def _shape_of(record: RequestView) -> tuple[object, ...]:
    """What the times of a request depend on."""
    asked = record.request
    size = (asked.model, asked.width, asked.height, asked.num_frames)
    return (*size, asked.num_inference_steps, asked.guidance_scale, record.dops)
