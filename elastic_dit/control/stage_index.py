"""Which GPUs one stage of one model can have, kept up to date GPU by GPU."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable

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
    serving_version : int
        Grows with every change of that.
    slots : OrderedDict of int to None
        Those about to be free for it that may pull inputs ahead, first to end first.
    """

    __slots__ = ("_blocks", "_free", "_widest", "free", "serving", "serving_version", "slots")

    def __init__(self) -> None:
        # A plain list: moving a few thousand numbers is less work than a tree in Python.
        self.free: list[GpuId] = []
        self.serving: set[GpuId] = set()
        self.serving_version = 0
        self.slots: OrderedDict[GpuId, None] = OrderedDict()
        self._free: set[GpuId] = set()
        self._blocks: BuddyAllocator | None = None
        self._widest: int | None = None

    def __repr__(self) -> str:
        return f"<StageIndex {len(self.free)} of {len(self.serving)} GPUs free>"

    def blocks(self, max_block: int) -> BuddyAllocator:
        """The free GPUs as aligned blocks, kept from the first call on."""
        if self._blocks is None:
            self._blocks = BuddyAllocator(max_block, gpus=self.free)
        return self._blocks

    def are_free(self, gpus: Iterable[GpuId]) -> bool:
        """Whether all of these GPUs can start it now."""
        return self._free.issuperset(gpus)

    def widest(self, slots_per_node: int) -> int:
        """GPUs that take work for it on the machine that has most of them, busy or not."""
        if self._widest is None:
            machines = Counter(gpu // slots_per_node for gpu in self.serving)
            self._widest = max(machines.values(), default=0)
        return self._widest

    def update(self, gpu: GpuId, serves: bool, free: bool, slot: bool) -> bool:
        """Bring it in line with a changed GPU; whether more than its slots changed."""
        changed = free != (gpu in self._free)
        if changed:
            self._set_free(gpu, free)
        if serves != (gpu in self.serving):
            (self.serving.add if serves else self.serving.discard)(gpu)
            self.serving_version += 1
            self._widest = None
            changed = True
        if slot:
            self.slots.setdefault(gpu)
        elif gpu in self.slots:
            del self.slots[gpu]
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
