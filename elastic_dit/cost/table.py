"""Measured latencies, interpolated over the size of the video."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from elastic_dit.cost.model import Shaped
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["LatencyCurve", "TableCost"]

CurveTable = Mapping[Stage, Mapping[int, "LatencyCurve"]]
"""Curves by stage and DoP."""


class LatencyCurve:
    """Seconds over pixels: straight between measurements, straight on beyond them.

    Beyond the ends it never falls with size and never goes below zero, whatever noise the
    outermost measurements carry.

    Parameters
    ----------
    points : iterable of (float, float)
        Pixels x frames, and seconds; at least one.

    Raises
    ------
    ConfigError
        Where there is no point, or two for one size.

    Examples
    --------
    >>> curve = LatencyCurve([(100, 2.0), (200, 3.0)])
    >>> curve(150), curve(400), curve(50)
    (2.5, 5.0, 1.5)
    """

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(points)
        self.sizes = [size for size, _ in ordered]
        self.seconds = [seconds for _, seconds in ordered]
        if not ordered or len(set(self.sizes)) != len(self.sizes):
            raise ConfigError("points", ordered, "one or more measurements of different sizes")

    def __repr__(self) -> str:
        return f"<LatencyCurve {len(self.sizes)} points to {self.seconds[-1]:.3g} s>"

    def __call__(self, size: float) -> float:
        """Seconds at `size`."""
        if len(self.sizes) == 1:
            return self.seconds[0]
        right = min(max(bisect_right(self.sizes, size), 1), len(self.sizes) - 1)
        left = right - 1
        slope = (self.seconds[right] - self.seconds[left]) / (self.sizes[right] - self.sizes[left])
        if size < self.sizes[0] or size > self.sizes[-1]:
            slope = max(0.0, slope)
        anchor = right if size > self.sizes[-1] else left
        return max(0.0, self.seconds[anchor] + slope * (size - self.sizes[anchor]))


class TableCost:
    """A cost model of measured curves for one model.

    Parameters
    ----------
    curves : mapping of str to CurveTable
        By GPU kind; the first kind is the default. DiT curves give one step's seconds. Stages
        other than the DiT use the curve of DoP 1 where they have none of the asked DoP, and take
        no time where they have none at all.

    Raises
    ------
    ConfigError
        Where a kind has no DiT curve.
    """

    def __init__(self, curves: Mapping[str, CurveTable]) -> None:
        self.curves = dict(curves)
        for kind, table in self.curves.items():
            if not table.get(Stage.DIT):
                raise ConfigError("curves", kind, "given with DiT latencies")
        if not self.curves:
            raise ConfigError("curves", self.curves, "given for one GPU kind or more")

    def __repr__(self) -> str:
        return f"<TableCost {', '.join(self.curves)}>"

    def _table(self, kind: str | None) -> CurveTable:
        if kind is None:
            return next(iter(self.curves.values()))
        if kind not in self.curves:
            raise ConfigError("kind", kind, f"a profiled GPU kind ({', '.join(self.curves)})")
        return self.curves[kind]

    def stage_seconds(
        self, request: Shaped, stage: Stage, dop: int = 1, kind: str | None = None
    ) -> float:
        """Seconds of a whole stage; see `CostModel`."""
        if stage is Stage.DIT:
            return request.num_inference_steps * self.step_seconds(request, dop, kind)
        curves = self._table(kind).get(stage, {})
        curve = curves.get(dop) or curves.get(1)
        return curve(_pixels(request)) if curve else 0.0

    def step_seconds(self, request: Shaped, dop: int, kind: str | None = None) -> float:
        """Seconds of one denoising step; see `CostModel`."""
        curves = self._table(kind)[Stage.DIT]
        if dop not in curves:
            raise ConfigError("dop", dop, f"one of {', '.join(map(str, sorted(curves)))}")
        return curves[dop](_pixels(request))

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:  # noqa: ARG002
        """Profiled degrees of parallelism; see `CostModel`."""
        return tuple(sorted(self._table(None)[Stage.DIT]))


def _pixels(request: Shaped) -> float:
    return float(request.width * request.height * request.num_frames)
