"""Where a group can be: free aligned blocks, and room to grow."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.block import Block
from elastic_dit.control.view import ClusterView
from elastic_dit.request import StageKey
from elastic_dit.state import GpuId

__all__ = ["Space"]


class Space:
    """Free GPUs for one stage of one model, as blocks inside nodes.

    A look at the blocks that the control plane keeps: made in a time that does not depend on how
    many GPUs are free, and valid until the next action.

    Parameters
    ----------
    view : ClusterView
    key : StageKey
    reserved : set of int
        Free GPUs that are spoken for.
    """

    def __init__(
        self, view: ClusterView, key: StageKey, reserved: AbstractSet[GpuId] = frozenset()
    ) -> None:
        self._blocks = view.blocks(key)
        self._reserved = reserved
        self._broken = set(_touching(self._blocks, reserved))
        self._parts = sorted(part for block in self._broken for part in _without(block, reserved))

    def __repr__(self) -> str:
        return f"<Space {self._blocks!r}, {len(self._reserved)} reserved>"

    @property
    def largest(self) -> int:
        """Size of the largest free block, 0 where nothing is free."""
        if not self._reserved:
            return self._blocks.largest_free
        size = self._blocks.max_block
        while size and self._first(size) is None:
            size //= 2
        return size

    def block(self, size: int) -> Block | None:
        """A free block of `size`, out of the smallest that holds it."""
        larger = size
        while larger <= self._blocks.max_block:
            first = self._first(larger)
            if first is not None:
                return Block(first.start, size)
            larger *= 2
        return None

    def around(self, block: Block, size: int) -> Block | None:
        """The block of `size` around a group's `block`, if all the rest of it is free."""
        while block.size < size:
            buddy = block.buddy
            if block.parent.size > self._blocks.max_block or not self._blocks.is_free(buddy):
                return None
            if not self._reserved.isdisjoint(buddy.gpus):
                return None
            block = block.parent
        return block

    def _first(self, size: int) -> Block | None:
        """The lowest of the maximal free blocks of exactly this size."""
        whole = (Block(start, size) for start in self._blocks.free_starts(size))
        first = next((block for block in whole if block not in self._broken), None)
        part = next((part for part in self._parts if part.size == size), None)
        return min((block for block in (first, part) if block is not None), default=None)


def _touching(blocks: BuddyAllocator, reserved: AbstractSet[GpuId]) -> Iterator[Block]:
    """The maximal free blocks with reserved GPUs."""
    covered: set[GpuId] = set()
    for gpu in reserved:
        block = None if gpu in covered or gpu not in blocks else blocks.free_around(Block(gpu, 1))
        if block is not None:
            covered.update(block.gpus)
            yield block


def _without(block: Block, reserved: AbstractSet[GpuId]) -> Iterator[Block]:
    """What is left of a block, in maximal parts."""
    if reserved.isdisjoint(block.gpus):
        yield block
    elif block.size > 1:
        for half in block.halves:
            yield from _without(half, reserved)
