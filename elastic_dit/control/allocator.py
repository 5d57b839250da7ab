"""Which GPUs form a group: a buddy allocator over nodes (DDiT §5).

GPU ids of one node are neighbours (``node * slots_per_node + index``), its links are fast, links
between nodes are slow. Groups are *blocks*: a power of two of GPUs that starts at a multiple of
its size. Two blocks are then disjoint or nested, never half overlapping, and a node of eight GPUs
needs seven process groups in all. Every operation touches one block per size on the way up or
down, so it costs O(log n) for n GPUs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from elastic_dit.control.block import Block, is_power_of_two
from elastic_dit.errors import ConfigError
from elastic_dit.state import GpuId

__all__ = ["BuddyAllocator"]


class BuddyAllocator:
    """Free GPUs as aligned blocks that split and merge.

    Parameters
    ----------
    slots_per_node : int
        GPU ids set aside for each node, a power of two.
    max_block : int, optional
        Largest block, a power of two; default one node. More lets groups span slow links.

    Raises
    ------
    ConfigError
        Where either is not a power of two.

    Examples
    --------
    >>> allocator = BuddyAllocator(8, gpus=range(8))
    >>> small = allocator.allocate(2)
    >>> small, allocator.largest_free
    (Block(start=0, size=2), 4)
    >>> allocator.grow(small)
    Block(start=0, size=4)
    >>> allocator.shrink(Block(0, 4), 1)
    Block(start=0, size=1)
    >>> allocator.free(Block(0, 1))
    >>> allocator
    <BuddyAllocator free 8 of 8: 0-7>
    """

    def __init__(
        self, slots_per_node: int, *, gpus: Iterable[GpuId] = (), max_block: int | None = None
    ) -> None:
        for field, value in (("slots_per_node", slots_per_node), ("max_block", max_block)):
            if value is not None and not is_power_of_two(value):
                raise ConfigError(field, value, "a power of two")
        self.slots_per_node = slots_per_node
        self.max_block = max_block or slots_per_node
        self._free: dict[int, list[int]] = {}
        size = 1
        while size <= self.max_block:
            self._free[size] = []
            size *= 2
        # Maximal free blocks, as (start, size).
        self._whole: set[tuple[GpuId, int]] = set()
        # Free GPUs inside a block, exact unless the block lies inside a larger free one (then 0).
        self._free_inside: defaultdict[tuple[GpuId, int], int] = defaultdict(int)
        self._held: set[Block] = set()
        self._present: set[GpuId] = set()
        self.free_count = 0
        """GPUs in no group."""
        for gpu in gpus:
            self.add(gpu)

    def __repr__(self) -> str:
        blocks = ", ".join(
            f"{block.start}-{block.start + block.size - 1}" if block.size > 1 else f"{block.start}"
            for block in self.free_blocks()
        )
        return f"<BuddyAllocator free {self.free_count} of {len(self)}: {blocks or 'none'}>"

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, gpu: GpuId) -> bool:
        return gpu in self._present

    # ------------------------------------------------------------------------- looking
    @property
    def largest_free(self) -> int:
        """Size of the largest block that could be had now, 0 where nothing is free."""
        return max((size for size, starts in self._free.items() if starts), default=0)

    def free_blocks(self) -> Iterator[Block]:
        """Maximal free blocks in the order of their GPUs."""
        found = [Block(start, size) for size, starts in self._free.items() for start in starts]
        return iter(sorted(found))

    def free_starts(self, size: int) -> Sequence[GpuId]:
        """Where the maximal free blocks of one size start, ascending."""
        return self._free.get(size, ())

    def free_around(self, block: Block) -> Block | None:
        """The maximal free block that `block` lies in, None where some of it is not free."""
        return self._enclosing_free(block)

    def fits(self, size: int) -> bool:
        """Whether a block of `size` could be had now."""
        return any(starts for larger, starts in self._free.items() if larger >= size)

    def is_free(self, block: Block) -> bool:
        """Whether every GPU of `block` is present and in no group."""
        return self._enclosing_free(block) is not None

    def fits_after(self, size: int, releases: Sequence[Block]) -> int | None:
        """How many of `releases`, in their order, make room for a block of `size`.

        Parameters
        ----------
        size : int
        releases : sequence of Block
            Disjoint held blocks, those that end first first.

        Returns
        -------
        int or None
            0 where it fits now, None where it does not even after all of them.

        Examples
        --------
        >>> allocator = BuddyAllocator(4, gpus=range(4))
        >>> a, b, c = (allocator.allocate(size) for size in (1, 1, 2))
        >>> allocator.fits_after(2, [a, c, b]), allocator.fits_after(4, [a, c])
        (2, None)
        """
        if self.fits(size):
            return 0
        if size > self.max_block:
            return None
        missing: dict[Block, int] = {}
        for count, released in enumerate(releases, start=1):
            window = released if released.size >= size else Block.around(released.start, size)
            lacking = missing.get(window)
            if lacking is None:
                lacking = window.size - self._free_inside[window]
            missing[window] = lacking - self._present_in(released)
            # A larger window fits once any half does; with lost GPUs it is looked at in parts.
            if missing[window] <= 0 or self._holds_whole(released, size):
                return count
        return None

    # ------------------------------------------------------------------------- membership
    def add(self, gpu: GpuId) -> None:
        """A GPU joined; it is free, or becomes so with the group that still holds its id.

        Raises
        ------
        ValueError
            Where it is here already.
        """
        if gpu in self._present:
            raise ValueError(f"GPU {gpu} is present already")
        self._present.add(gpu)
        if not self._is_held(Block(gpu, 1)):
            self._insert(Block(gpu, 1))

    def remove(self, gpu: GpuId) -> None:
        """A GPU left. A group that holds it keeps its block until freed; then the rest returns.

        Raises
        ------
        KeyError
            Where it is not present.
        """
        self._present.remove(gpu)
        block = Block(gpu, 1)
        if self.is_free(block):
            self._carve(block)

    # ------------------------------------------------------------------------- groups
    def allocate(self, size: int) -> Block | None:
        """Take a block: from the smallest free one that holds it, lowest GPUs first.

        Returns
        -------
        Block or None
            None where none fits; nothing has changed then.
        """
        for larger, starts in self._free.items():
            if larger >= size and starts:
                block = Block(starts[0], size)
                self._carve(block)
                self._held.add(block)
                return block
        return None

    def take(self, block: Block) -> None:
        """Take exactly this block.

        Raises
        ------
        ValueError
            Where some of it is not free.
        """
        if not self.is_free(block):
            raise ValueError(f"{block} is not free")
        self._carve(block)
        self._held.add(block)

    def free(self, block: Block) -> None:
        """Give a group's block back; it merges with what is free beside it.

        Raises
        ------
        ValueError
            Where the block is not held.
        """
        self._forget(block)
        self._give_back(block)

    def grow(self, block: Block) -> Block | None:
        """Double a group in place, where its buddy is free (promotion).

        Returns
        -------
        Block or None
            The larger block, which replaces `block`; None where the buddy is not free.

        Raises
        ------
        ValueError
            Where the block is not held.
        """
        if block not in self._held:
            raise ValueError(f"{block} is not held")
        if block.parent.size > self.max_block or not self.is_free(block.buddy):
            return None
        self._carve(block.buddy)
        self._held.remove(block)
        self._held.add(block.parent)
        return block.parent

    def shrink(self, block: Block, size: int, keep: GpuId | None = None) -> Block:
        """Keep a part of a group and free the rest (demotion, or decode on the master).

        Parameters
        ----------
        block : Block
            A held block.
        size : int
            GPUs to keep.
        keep : int, optional
            A GPU that must stay; default the master.

        Returns
        -------
        Block
            What is kept, held in the place of `block`.

        Raises
        ------
        ValueError
            Where the block is not held, or has no such part.
        """
        kept = Block.around(block.start if keep is None else keep, size)
        if not block.covers(kept) or not is_power_of_two(size):
            raise ValueError(f"{block} has no part of {size} GPUs with GPU {keep}")
        self._forget(block)
        while block != kept:
            lower, upper = block.halves
            block, rest = (lower, upper) if lower.covers(kept) else (upper, lower)
            self._give_back(rest)
        self._held.add(kept)
        return kept

    # ------------------------------------------------------------------------- inside
    def _forget(self, block: Block) -> None:
        if block not in self._held:
            raise ValueError(f"{block} is not held")
        self._held.remove(block)

    def _give_back(self, block: Block) -> None:
        present = self._present_in(block)
        if present == block.size:
            self._insert(block)
        elif present:
            for half in block.halves:
                self._give_back(half)

    def _present_in(self, block: Block) -> int:
        return sum(gpu in self._present for gpu in block.gpus)

    def _holds_whole(self, block: Block, size: int) -> bool:
        """Whether an aligned part of `size` of the block lost no GPU."""
        return block.size >= size and any(
            self._present_in(Block(start, size)) == size
            for start in range(block.start, block.start + block.size, size)
        )

    def _insert(self, block: Block) -> None:
        start, size = block
        self.free_count += size
        self._count_above(block, size)
        while size < self.max_block and (start ^ size, size) in self._whole:
            self._drop(start ^ size, size)
            self._free_inside.pop((start ^ size, size), None)
            start, size = start & ~size, 2 * size
        self._put(start, size)

    def _carve(self, block: Block) -> None:
        """Take `block` out of the free block around it, leaving the other parts free."""
        around = self._enclosing_free(block)
        assert around is not None
        start, size = around
        self._drop(start, size)
        while size > block.size:
            size //= 2
            upper = bool(block.start & size)
            self._put(start if upper else start + size, size)
            start += size if upper else 0
            self._free_inside[start, size] = size
        self._free_inside.pop(block, None)
        self._count_above(block, -block.size)
        self.free_count -= block.size

    def _put(self, start: GpuId, size: int) -> None:
        """A maximal free block there is."""
        self._whole.add((start, size))
        insort(self._free[size], start)
        self._free_inside[start, size] = size

    def _drop(self, start: GpuId, size: int) -> None:
        """A maximal free block is none any more."""
        self._whole.remove((start, size))
        starts = self._free[size]
        del starts[bisect_left(starts, start)]

    def _count_above(self, block: Block, change: int) -> None:
        start, size = block
        while size < self.max_block:
            start, size = start & ~size, 2 * size
            self._free_inside[start, size] += change

    def _enclosing_free(self, block: Block) -> Block | None:
        start, size = block
        while size <= self.max_block:
            if (start, size) in self._whole:
                return Block(start, size)
            start, size = start & ~size, 2 * size
        return None

    def _is_held(self, block: Block) -> bool:
        while self._held and block.size <= self.max_block:
            if block in self._held:
                return True
            block = block.parent
        return False
