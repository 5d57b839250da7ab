"""How many machines there shall be, and which are given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from elastic_dit.config import PlacementConfig
from elastic_dit.control.snapshot import GpuSnapshot

__all__ = ["Machines", "Wish"]


class Wish(NamedTuple):
    """What a plan shall say about machines.

    Attributes
    ----------
    nodes : int or None
        Machines wanted in all; None to leave that as it is.
    retire : tuple of str
        Those to be given back.
    differs : bool
        Whether it was wished since the last plan.
    """

    nodes: int | None
    retire: tuple[str, ...]
    differs: bool


class Machines:
    """Asks for one machine at a time, within the configured limits, and gives back idle ones.

    Parameters
    ----------
    config : PlacementConfig
        Without `max_machines` none is ever asked for or given back.
    """

    def __init__(self, config: PlacementConfig) -> None:
        self._config = config
        self._wanted: int | None = None
        self._retire: tuple[str, ...] = ()
        self._differs = False

    def __repr__(self) -> str:
        return f"<Machines {self._wanted} wanted, {len(self._retire)} to go>"

    def ask(self, gpus: Sequence[GpuSnapshot]) -> bool:
        """Wish for one more; False where that is not allowed, or one is awaited already."""
        most = self._config.max_machines
        there = len({gpu.node for gpu in gpus})
        if most is None or there >= most or (self._wanted is not None and self._wanted > there):
            return False
        self._wanted = there + 1
        self._differs = True
        return True

    def may_shrink(self, gpus: Sequence[GpuSnapshot]) -> bool:
        """Whether a machine could be given back."""
        there = len({gpu.node for gpu in gpus})
        return self._config.max_machines is not None and there > self._config.min_machines

    def staying(self, gpus: Sequence[GpuSnapshot], needed: int) -> list[GpuSnapshot]:
        """The GPUs without those of machines that can be spared, which are to be given back.

        Parameters
        ----------
        gpus : sequence of GpuSnapshot
        needed : int
            How many must stay.
        """
        sizes = Counter(gpu.node for gpu in gpus)
        self._retire = ()
        spare = len(gpus) - needed
        if self._config.max_machines is not None:
            held = Counter(gpu.node for gpu in gpus if gpu.wanted)
            for node in sorted(sizes, key=lambda node: (held[node], node)):
                left = len(sizes) - len(self._retire)
                if sizes[node] <= spare and left > self._config.min_machines:
                    self._retire += (node,)
                    spare -= sizes[node]
        if self._retire:
            self._wanted = len(sizes) - len(self._retire)
            self._differs = True
        return [gpu for gpu in gpus if gpu.node not in self._retire]

    def wish(self) -> Wish:
        """What the next plan says."""
        wish = Wish(self._wanted if self._differs else None, self._retire, self._differs)
        self._differs = False
        return wish
