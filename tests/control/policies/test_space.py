from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.block import Block
from elastic_dit.control.policies.space import Space
from elastic_dit.request import Stage, StageKey

KEY = StageKey("m", Stage.DIT)


class FreeGpus:
    """As much of a view as a space looks at."""

    def __init__(self, *free: int, largest: int = 8) -> None:
        self._blocks = BuddyAllocator(largest, gpus=free)

    def blocks(self, key: StageKey) -> BuddyAllocator:
        assert key is KEY
        return self._blocks


def space(*free: int, reserved: frozenset[int] = frozenset()) -> Space:
    return Space(FreeGpus(*free), KEY, reserved)  # type: ignore[arg-type]


def test_the_smallest_block_that_holds_a_group_is_taken() -> None:
    assert space(0, 1, 2, 3, 6).block(1) == Block(6, 1)
    assert space(0, 1, 2, 3, 6).block(2) == Block(0, 2)
    assert space(1, 2).block(2) is None
    assert space(6, 7, 8, 9).largest == 2
    assert space().largest == 0


def test_reserved_gpus_are_not_free() -> None:
    assert space(0, 1, 2, 3, reserved=frozenset({1})).largest == 2


@pytest.mark.parametrize(
    ("free", "size", "found"),
    [
        ((1,), 2, Block(0, 2)),
        ((1, 2, 3), 4, Block(0, 4)),
        ((2, 3), 4, None),
        ((1, 2, 3), 8, None),
        ((1, 2, 3, 4, 5, 6, 7), 8, Block(0, 8)),
        (tuple(range(1, 16)), 16, None),  # not across nodes
    ],
)
def test_room_to_grow(free: tuple[int, ...], size: int, found: Block | None) -> None:
    assert space(*free).around(Block(0, 1), size) == found


def test_looking_takes_nothing() -> None:
    here = space(0, 1)
    assert here.block(2) == here.block(2) == Block(0, 2)


@given(st.sets(st.integers(0, 31)), st.frozensets(st.integers(0, 31), max_size=6))
def test_reserving_is_as_if_the_gpus_were_not_free(
    free: set[int], reserved: frozenset[int]
) -> None:
    found = space(*free, reserved=reserved)
    plain = space(*(free - reserved))
    assert found.largest == plain.largest
    for size in (1, 2, 4, 8):
        assert found.block(size) == plain.block(size)
        here = Block(0, 1)
        assert found.around(here, size) == plain.around(here, size)
