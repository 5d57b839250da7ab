"""Which GPUs one stage of one model can have, kept up to date GPU by GPU."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.state import GpuId

__all__ = ["StageIndex"]


class StageIndex:
    """The GPUs of one stage of one model.

    Attributes
    ----------
    free : list of int
        Those that can start it now, ascending.
    serving : set of int
        Those that take work for it, busy or not.
    slots : OrderedDict of int to None
        Those about to be free for it that may pull inputs ahead, first to end first.
    """

    __slots__ = ("_blocks", "_free", "free", "serving", "slots")

    def __init__(self) -> None:
        # A plain list: moving a few thousand numbers is less work than a tree in Python.
        self.free: list[GpuId] = []
        self.serving: set[GpuId] = set()
        self.slots: OrderedDict[GpuId, None] = OrderedDict()
        self._free: set[GpuId] = set()
        self._blocks: BuddyAllocator | None = None

    def __repr__(self) -> str:
        return f"<StageIndex {len(self.free)} of {len(self.serving)} GPUs free>"

    def blocks(self, max_block: int) -> BuddyAllocator:
        """The free GPUs as aligned blocks, kept from the first call on."""
        if self._blocks is None:
            self._blocks = BuddyAllocator(max_block, gpus=self.free)
        return self._blocks

    def update(self, gpu: GpuId, *, serves: bool, free: bool, slot: bool) -> bool:
        """Bring it in line with a changed GPU; whether more than its slots changed."""
        changed = False
        if free != (gpu in self._free):
            self._set_free(gpu, free)
            changed = True
        if serves != (gpu in self.serving):
            (self.serving.add if serves else self.serving.discard)(gpu)
            changed = True
        if slot:
            self.slots.setdefault(gpu)
        else:
            self.slots.pop(gpu, None)
        return changed

    def _set_free(self, gpu: GpuId, free: bool) -> None:
        if free:
            self._free.add(gpu)
            insort(self.free, gpu)
            if self._blocks is not None:
                self._blocks.add(gpu)
        else:
            self._free.remove(gpu)
            del self.free[bisect_left(self.free, gpu)]
            if self._blocks is not None:
                self._blocks.remove(gpu)
