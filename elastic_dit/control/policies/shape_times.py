"""What requests of one shape take at every DoP."""

from __future__ import annotations

from elastic_dit.control.view import RequestView, StageTimes
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["ShapeTimes", "shape_of"]

_DOPS = (1, 2, 4, 8, 16, 32, 64)
_UNKNOWN_STEP_S = 1.0
"""Step time of what was never seen: any figure will do to rank it among its like."""


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

    __slots__ = ("_widest", "decode_s", "fastest_s", "read_at", "step_s")

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


def shape_of(record: RequestView) -> tuple[object, ...]:
    """What the times of a request depend on: those of equal shape share one `ShapeTimes`."""
    asked = record.request
    size = (asked.model, asked.width, asked.height, asked.num_frames)
    return (*size, asked.num_inference_steps, asked.guidance_scale, record.dops)
