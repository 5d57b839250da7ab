from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.block import Block
from elastic_dit.errors import ConfigError

SLOTS = 8
GPUS = 24
SIZES = st.sampled_from([1, 2, 4, 8])


class BruteForce:
    """The same promises, kept by looking at every GPU."""

    def __init__(self) -> None:
        self.present: set[int] = set()
        self.held: set[Block] = set()

    @property
    def free(self) -> set[int]:
        return self.present - {gpu for block in self.held for gpu in block.gpus}

    def windows(self, size: int) -> list[Block]:
        return [Block(start, size) for start in range(0, GPUS, size)]

    def fits(self, size: int) -> bool:
        return any(set(window.gpus) <= self.free for window in self.windows(size))

    def choice(self, size: int) -> Block | None:
        """Lowest part of the smallest maximal free block that holds `size`."""
        for larger in (s for s in (1, 2, 4, 8) if s >= size):
            for window in self.windows(larger):
                whole = set(window.gpus) <= self.free
                if whole and (larger == SLOTS or not set(window.parent.gpus) <= self.free):
                    return Block(window.start, size)
        return None

    def fits_after(self, size: int, releases: list[Block]) -> int | None:
        for count in range(len(releases) + 1):
            after = BruteForce()
            after.present, after.held = self.present, self.held - set(releases[:count])
            if after.fits(size):
                return count
        return None


class AllocatorMachine(RuleBasedStateMachine):
    @initialize(missing=st.sets(st.integers(0, GPUS - 1), max_size=6))
    def start(self, missing: set[int]) -> None:
        self.model = BruteForce()
        self.model.present = set(range(GPUS)) - missing
        self.allocator = BuddyAllocator(SLOTS, gpus=sorted(self.model.present))

    def held(self, data: st.DataObject) -> Block:
        return data.draw(st.sampled_from(sorted(self.model.held)))

    def replace(self, old: Block, new: Block) -> None:
        self.model.held.remove(old)
        self.model.held.add(new)

    @rule(size=SIZES)
    def allocate(self, size: int) -> None:
        block = self.allocator.allocate(size)
        assert block == self.model.choice(size)
        if block is not None:
            self.model.held.add(block)

    @rule(size=SIZES, index=st.integers(0, GPUS - 1))
    def take(self, size: int, index: int) -> None:
        block = Block.around(index, size)
        if set(block.gpus) <= self.model.free:
            self.allocator.take(block)
            self.model.held.add(block)
        else:
            with pytest.raises(ValueError, match="not free"):
                self.allocator.take(block)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = self.held(data)
        self.allocator.free(block)
        self.model.held.remove(block)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        block = self.held(data)
        grown = self.allocator.grow(block)
        possible = block.size < SLOTS and set(block.buddy.gpus) <= self.model.free
        assert grown == (block.parent if possible else None)
        if grown is not None:
            self.replace(block, grown)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), size=SIZES)
    def shrink(self, data: st.DataObject, size: int) -> None:
        block = self.held(data)
        keep = data.draw(st.sampled_from(block.gpus))
        if size > block.size:
            with pytest.raises(ValueError, match="no part"):
                self.allocator.shrink(block, size, keep)
            return
        kept = self.allocator.shrink(block, size, keep)
        assert kept == Block.around(keep, size)
        self.replace(block, kept)

    @precondition(lambda self: self.model.present)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        gpu = data.draw(st.sampled_from(sorted(self.model.present)))
        self.allocator.remove(gpu)
        self.model.present.remove(gpu)

    @precondition(lambda self: len(self.model.present) < GPUS)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        gpu = data.draw(st.sampled_from(sorted(set(range(GPUS)) - self.model.present)))
        self.allocator.add(gpu)
        self.model.present.add(gpu)

    @rule(data=st.data(), size=SIZES)
    def look_ahead(self, data: st.DataObject, size: int) -> None:
        releases = data.draw(st.permutations(sorted(self.model.held)))
        expected = self.model.fits_after(size, releases)
        assert self.allocator.fits_after(size, releases) == expected

    @invariant()
    def agrees_with_the_model(self) -> None:
        free = [gpu for block in self.allocator.free_blocks() for gpu in block.gpus]
        assert sorted(free) == sorted(self.model.free)  # sorted: a GPU twice would show
        assert self.allocator.free_count == len(free)
        assert len(self.allocator) == len(self.model.present)
        for size in (1, 2, 4, 8, 16):
            assert self.allocator.fits(size) == (size <= SLOTS and self.model.fits(size))

    @invariant()
    def free_blocks_are_aligned_and_merged(self) -> None:
        found = set(self.allocator.free_blocks())
        for block in found:
            assert block.start % block.size == 0
            assert block.size == SLOTS or block.buddy not in found

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for block in self.model.held:
            self.allocator.free(block)
        for gpu in set(range(GPUS)) - self.model.present:
            self.allocator.add(gpu)
        whole_nodes = [Block(start, SLOTS) for start in range(0, GPUS, SLOTS)]
        assert list(self.allocator.free_blocks()) == whole_nodes


AllocatorMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestAllocator = AllocatorMachine.TestCase


@pytest.mark.parametrize("slots", [0, 3, -2])
def test_slots_must_be_a_power_of_two(slots: int) -> None:
    with pytest.raises(ConfigError, match="slots_per_node"):
        BuddyAllocator(slots)


def test_a_block_spans_nodes_only_where_allowed() -> None:
    assert BuddyAllocator(8, gpus=range(16)).allocate(16) is None
    assert BuddyAllocator(8, gpus=range(16), max_block=16).allocate(16) == Block(0, 16)


def test_what_is_not_held_cannot_be_given_back_grown_or_shrunk() -> None:
    allocator = BuddyAllocator(8, gpus=range(8))
    for attempt in (allocator.free, allocator.grow, lambda block: allocator.shrink(block, 1)):
        with pytest.raises(ValueError, match="not held"):
            attempt(Block(0, 2))
    with pytest.raises(ValueError, match="present already"):
        allocator.add(3)
    with pytest.raises(KeyError):
        allocator.remove(99)


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=40))
def test_as_much_fits_as_there_are_gpus_when_large_blocks_come_first(sizes: list[int]) -> None:
    allocator = BuddyAllocator(8, gpus=range(16))
    granted = [allocator.allocate(size) for size in sorted(sizes, reverse=True)]
    used = sum(block.size for block in granted if block)
    assert used == min(16, sum(sizes)) or 16 - used < min(sizes)


def _seconds_per_cycle(gpus: int) -> float:
    allocator = BuddyAllocator(8, gpus=range(gpus))
    for _ in range(gpus // 2):
        allocator.allocate(1)
    started = time.perf_counter()
    for _ in range(300):
        block = allocator.allocate(2)
        assert block is not None
        grown = allocator.grow(block)
        allocator.free(allocator.shrink(grown or block, 1))
    return (time.perf_counter() - started) / 300


def test_time_grows_far_slower_than_the_cluster() -> None:
    small, large = (min(_seconds_per_cycle(n) for _ in range(5)) for n in (16, 4096))
    assert large < 16 * small  # 256 times the GPUs
