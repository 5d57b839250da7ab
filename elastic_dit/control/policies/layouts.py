"""How GPUs are cut into fixed model instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple, Protocol

from elastic_dit.control.block import Block
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.state import GpuId

__all__ = ["EqualUnits", "Layout", "RatioUnits", "SameUnits", "Unit"]


class Unit(NamedTuple):
    """One model instance.

    Attributes
    ----------
    block : Block
    kind : int
        Optimal DoP of the requests it is meant for; 0 for all.
    """

    block: Block
    kind: int = 0


class Layout(Protocol):
    """How the GPUs are cut into units."""

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:
        """Units of the GPUs there are, ascending."""
        ...


@dataclass(frozen=True, slots=True)
class SameUnits:
    """Every aligned block of `dop` GPUs is a unit for all requests: static DoP.

    Examples
    --------
    >>> SameUnits(8).units([0, 1, 2, 3], slots_per_node=8)
    [Unit(block=Block(start=0, size=4), kind=0)]
    """

    dop: int

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:  # noqa: ARG002
        """All whole blocks; where none is whole, those of half the size.

        Requests must not wait for GPUs that may never come.
        """
        sizes = takewhile(bool, (self.dop >> halvings for halvings in count()))
        blocks: Iterator[list[Block]] = (list(_blocks(gpus, size)) for size in sizes)
        return [Unit(block) for block in next(filter(None, blocks), [])]


@dataclass(frozen=True, slots=True)
class RatioUnits:
    """GPUs shared out by a known mix of requests, at one DoP for all (SPCI).

    Attributes
    ----------
    shares : mapping of int to float
        Part of the requests by their optimal DoP.
    dop : int
        Of every unit.
    """

    shares: Mapping[int, float]
    dop: int = 1

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:  # noqa: ARG002
        """Whole blocks, the kinds in proportion by largest remainder, at least one each."""
        blocks = list(_blocks(gpus, self.dop))
        counts = split_by_ratio(len(blocks), self.shares)
        order = [kind for kind in sorted(counts) for _ in range(counts[kind])]
        return [Unit(block, kind) for block, kind in zip(blocks, order, strict=True)]


@dataclass(frozen=True, slots=True)
class EqualUnits:
    """As many units for every kind, each at the optimal DoP of its kind (DPCI, DP)."""

    kinds: tuple[int, ...]

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:
        """Large units first, so that all are aligned; what is left over forms none.

        Where there are too few for one of each kind, all are for all.
        """
        free = set(gpus)
        units: list[Unit] = []
        each = len(gpus) // sum(self.kinds)
        if not each:
            return SameUnits(max(self.kinds)).units(gpus, slots_per_node)
        for kind in sorted(self.kinds, reverse=True):
            size = min(kind, slots_per_node)
            for block in list(_blocks(sorted(free), size))[:each]:
                units.append(Unit(block, kind))
                free.difference_update(block.gpus)
        return sorted(units)


def _blocks(gpus: Sequence[GpuId], size: int) -> Iterator[Block]:
    """Whole aligned blocks among some GPUs."""
    there = set(gpus)
    for start in sorted({gpu - gpu % size for gpu in gpus}):
        block = Block(start, size)
        if there.issuperset(block.gpus):
            yield block
