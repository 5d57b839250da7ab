"""Where a group can be: free aligned blocks, and room to grow."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.block import Block
from elastic_dit.control.view import ClusterView
from elastic_dit.request import StageKey
from elastic_dit.state import GpuId

__all__ = ["Space"]


class Space:
    """Free GPUs for one stage of one model, as blocks inside nodes.

    Made afresh for each look: a busy cluster has few free GPUs, and only those cost time.

    Parameters
    ----------
    view : ClusterView
    key : StageKey
    slots_per_node : int
    reserved : set of int
        Free GPUs that are spoken for.
    """

    def __init__(
        self, view: ClusterView, key: StageKey, slots_per_node: int, reserved: AbstractSet[GpuId]
    ) -> None:
        free = (gpu for gpu in view.free(key) if gpu not in reserved)
        # The largest power of two that divides a node, so that no aligned block leaves it.
        self._blocks = BuddyAllocator(slots_per_node & -slots_per_node, gpus=free)

    def __repr__(self) -> str:
        return f"<Space {self._blocks!r}>"

    @property
    def largest(self) -> int:
        """Size of the largest free block, 0 where nothing is free."""
        return self._blocks.largest_free

    def block(self, size: int) -> Block | None:
        """A free block of `size`, out of the smallest that holds it."""
        found = self._blocks.allocate(size)
        if found is not None:
            self._blocks.free(found)
        return found

    def around(self, block: Block, size: int) -> Block | None:
        """The block of `size` around a group's `block`, if all the rest of it is free."""
        while block.size < size:
            if block.parent.size > self._blocks.max_block or not self._blocks.is_free(block.buddy):
                return None
            block = block.parent
        return block
