"""The experiment grid of DDiT (§6.1, Figures 10, 11, 12 and 16) as data.

The paper gives neither a request count per run nor a size of its burst; both are set here and
must be told wherever results are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elastic_dit.cost.readers import FIGURE_17_FRAMES, FIGURE_17_STEPS, RESOLUTIONS
from elastic_dit.simulate.workload import Arrival, RequestClass, burst, poisson

__all__ = [
    "MIXES",
    "MODEL",
    "MULTI_NODE",
    "RATES_PER_S",
    "REQUESTS",
    "SEEDS",
    "SINGLE_NODE",
    "SIZES",
    "Cell",
    "Deployment",
    "cells",
    "request_classes",
]

MODEL = "opensora-1.2"
"""Model name of the grid's requests."""

SIZES = ("144p", "240p", "360p")
"""Low, medium and high resolution."""

MIXES: tuple[tuple[int, int, int], ...] = (
    (1, 1, 1),
    (2, 2, 6),
    (2, 6, 2),
    (6, 2, 2),
    (2, 4, 4),
    (4, 2, 4),
    (4, 4, 2),
    (1, 3, 6),
    (6, 1, 3),
    (3, 6, 1),
)
"""Low : medium : high, in the order of Figure 11."""

RATES_PER_S = (0.25, 0.5, 0.75, 1.0)
"""Mean arrivals per second; beside them the burst, where all arrive at once."""

REQUESTS = 100
SEEDS = (0, 1, 2, 3, 4)

_FPS = 24
_GUIDANCE_SCALE = 7.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """Machines of an experiment.

    Attributes
    ----------
    nodes, gpus_per_node : int
    """

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node


SINGLE_NODE = Deployment(nodes=1, gpus_per_node=8)
MULTI_NODE = Deployment(nodes=8, gpus_per_node=8)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid.

    Attributes
    ----------
    mix : tuple of int
        Low : medium : high.
    rate_per_s : float or None
        None for the burst.

    Examples
    --------
    >>> cell = Cell((2, 6, 2), 0.5)
    >>> cell.name, len(cell.arrivals(seed=0))
    ('2:6:2@0.5', 100)
    """

    mix: tuple[int, int, int]
    rate_per_s: float | None

    @property
    def name(self) -> str:
        """Short name, such as ``1:1:1@burst``."""
        rate = "burst" if self.rate_per_s is None else f"{self.rate_per_s:g}"
        return f"{':'.join(map(str, self.mix))}@{rate}"

    def arrivals(self, seed: int, count: int = REQUESTS) -> tuple[Arrival, ...]:
        """The requests of one run.

        Cells of one mix bring the same sizes in the same order, only further apart.
        """
        classes = request_classes(self.mix)
        if self.rate_per_s is None:
            return burst(classes, count=count, seed=seed)
        return poisson(classes, rate_per_s=self.rate_per_s, count=count, seed=seed)


def cells() -> Iterator[Cell]:
    """All 50 cells: every mix at every rate, and the burst."""
    for mix in MIXES:
        for rate in (*RATES_PER_S, None):
            yield Cell(mix, rate)


def request_classes(mix: tuple[int, int, int]) -> tuple[RequestClass, ...]:
    """The three sizes as request classes of 51 frames and 30 steps."""
    return tuple(
        RequestClass(
            label=size,
            share=share,
            options={
                "model": MODEL,
                "width": RESOLUTIONS[size][0],
                "height": RESOLUTIONS[size][1],
                "num_frames": FIGURE_17_FRAMES,
                "fps": _FPS,
                "num_inference_steps": FIGURE_17_STEPS,
                "guidance_scale": _GUIDANCE_SCALE,
            },
        )
        for size, share in zip(SIZES, mix, strict=True)
    )
