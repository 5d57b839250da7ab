import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.control.block import Block, bandwidth_aware_partition

blocks = st.builds(
    lambda order, index: Block(index << order, 1 << order), st.integers(0, 5), st.integers(0, 40)
)


@settings(deadline=None)
@given(blocks)
def test_a_block_and_its_buddy_make_their_parent(block: Block) -> None:
    assert block.buddy.buddy == block
    assert block.buddy.parent == block.parent
    assert sorted(block.gpus + block.buddy.gpus) == list(block.parent.gpus)
    assert set(block.parent.halves) == {block, block.buddy}


@settings(deadline=None)
@given(blocks, blocks)
def test_two_blocks_are_nested_or_disjoint(one: Block, other: Block) -> None:
    shared = set(one.gpus) & set(other.gpus)
    assert shared in (set(), set(one.gpus), set(other.gpus))
    assert one.covers(other) == (shared == set(other.gpus))


@settings(deadline=None)
@given(blocks)
def test_a_block_is_found_again_from_its_members(block: Block) -> None:
    assert Block.of(reversed(block.gpus)) == block
    assert Block.around(block.gpus[-1], block.size) == block


@pytest.mark.parametrize("gpus", [(), (1, 2), (0, 1, 2), (0, 2), (0, 0), (2, 3, 4, 5)])
def test_other_sets_of_gpus_are_no_block(gpus: tuple[int, ...]) -> None:
    assert Block.of(gpus) is None


@pytest.mark.parametrize(
    ("first", "count", "dop", "instances"),
    [
        (9, 7, 1, 7),  # the example of DDiT §4.2.2
        (9, 7, 4, 1),
        (0, 16, 8, 2),
        (4, 8, 8, 0),  # eight GPUs, four on either side of a slow link
        (4, 8, 4, 2),
        (0, 16, 16, 0),
        (3, 0, 1, 0),
    ],
)
def test_instances_do_not_cross_nodes(first: int, count: int, dop: int, instances: int) -> None:
    assert bandwidth_aware_partition(first, count, dop, 8) == instances
