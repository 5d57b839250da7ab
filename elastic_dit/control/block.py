"""Aligned groups of GPUs: the only shapes a sequence-parallel group may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from elastic_dit.state import GpuId

__all__ = ["Block", "bandwidth_aware_partition", "is_power_of_two"]


class Block(NamedTuple):
    """An aligned group of neighbouring GPUs.

    Attributes
    ----------
    start : int
        Lowest GPU id, the master; a multiple of `size`.
    size : int
        Number of GPUs, a power of two.

    Examples
    --------
    >>> Block(4, 2).gpus, Block(4, 2).buddy, Block(4, 2).parent
    ((4, 5), Block(start=6, size=2), Block(start=4, size=4))
    """

    start: GpuId
    size: int

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """The members, master first."""
        return tuple(range(self.start, self.start + self.size))

    @property
    def buddy(self) -> Block:
        """The only block this one can merge with."""
        return Block(self.start ^ self.size, self.size)

    @property
    def parent(self) -> Block:
        """What this block and its buddy make together."""
        return Block(self.start & ~self.size, self.size * 2)

    @property
    def halves(self) -> tuple[Block, Block]:
        """Lower and upper half."""
        half = self.size // 2
        return Block(self.start, half), Block(self.start + half, half)

    @classmethod
    def around(cls, gpu: GpuId, size: int) -> Self:
        """The block of `size` that GPU `gpu` is in.

        >>> Block.around(5, 4)
        Block(start=4, size=4)
        """
        return cls(gpu - gpu % size, size)

    def covers(self, other: Block) -> bool:
        """Whether `other` lies inside this block."""
        return self.start <= other.start and other.start + other.size <= self.start + self.size

    @classmethod
    def of(cls, gpus: Iterable[GpuId]) -> Self | None:
        """The block with exactly these members, None where they are no aligned power of two.

        >>> Block.of((6, 7, 4, 5)), Block.of((1, 2))
        (Block(start=4, size=4), None)
        """
        members = sorted(gpus)
        if not members:
            return None
        block = cls(members[0], len(members))
        aligned = is_power_of_two(block.size) and block.start % block.size == 0
        return block if aligned and members == list(block.gpus) else None


def bandwidth_aware_partition(first: GpuId, count: int, dop: int, slots_per_node: int) -> int:
    """Instances of degree `dop` that fit on neighbouring GPUs without crossing a slow link.

    ``BandwidthAwarePartition`` of DDiT's Algorithm 1, line 15.

    Parameters
    ----------
    first : int
        First GPU id of the range.
    count : int
        GPUs in the range.
    dop : int
        GPUs of one instance.
    slots_per_node : int
        GPUs of one node.

    Returns
    -------
    int
        Number of instances, alpha in the paper; 0 where none fits.

    Examples
    --------
    The paper's example: seven GPUs after the first nine of two nodes of eight.

    >>> bandwidth_aware_partition(9, 7, 1, 8), bandwidth_aware_partition(9, 7, 4, 8)
    (7, 1)
    """
    last = first + count
    nodes = range(first // slots_per_node, -(-last // slots_per_node))
    return sum(
        (min(last, (node + 1) * slots_per_node) - max(first, node * slots_per_node)) // dop
        for node in nodes
    )


def is_power_of_two(value: int) -> bool:
    """Whether `value` is one of 1, 2, 4, 8 and so on."""
    return value > 0 and value & (value - 1) == 0
