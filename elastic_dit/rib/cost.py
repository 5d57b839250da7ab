"""A profile as a cost model, for the simulator."""

from __future__ import annotations

from elastic_dit.cost import Shaped
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.rib.book import LatencyBook
from elastic_dit.rib.latency import Latency, LatencyKey, is_guided

__all__ = ["RibCost"]


class RibCost:
    """`elastic_dit.cost.CostModel` of measured latencies and estimates beside them.

    Parameters
    ----------
    book : LatencyBook
    overhead_s : float
        What every stage takes on top, such as messages and pulls between engines.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> key = LatencyKey("m", Stage.DIT, 64, 64, 9, False, 1, "virtual")
    >>> cost = RibCost(LatencyBook([Latency(key=key, seconds=0.5, setup_s=0.25)]))
    >>> request = SimpleNamespace(model="m", width=64, height=64, num_frames=9,
    ...                           num_inference_steps=4, guidance_scale=1.0)
    >>> cost.step_seconds(request, 1), cost.stage_seconds(request, Stage.DIT)
    (0.5, 2.25)
    """

    def __init__(self, book: LatencyBook, overhead_s: float = 0.0) -> None:
        self.book = book
        self.overhead_s = overhead_s

    def __repr__(self) -> str:
        return f"<RibCost {self.book!r}>"

    def stage_seconds(
        self, request: Shaped, stage: Stage, dop: int = 1, kind: str | None = None
    ) -> float:
        """Seconds of a whole stage; see `CostModel`."""
        found = self._find(request, stage, dop if stage is Stage.DIT else 1, kind)
        times = request.num_inference_steps if stage is Stage.DIT else 1
        return self.overhead_s + found.setup_s + times * found.seconds

    def step_seconds(self, request: Shaped, dop: int, kind: str | None = None) -> float:
        """Seconds of one denoising step; see `CostModel`."""
        return self._find(request, Stage.DIT, dop, kind).seconds

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:
        """Profiled degrees of parallelism; see `CostModel`."""
        return self.book.dops(request.model) or (1,)

    def _find(self, request: Shaped, stage: Stage, dop: int, kind: str | None) -> Latency:
        guided = is_guided(request) and stage is not Stage.DECODER
        shape = (request.width, request.height, request.num_frames)
        found = self.book.find(LatencyKey(request.model, stage, *shape, guided, dop, kind or ""))
        if found is None:
            raise ConfigError("model", request.model, f"profiled: {stage} on {kind or 'any GPU'}")
        return found
