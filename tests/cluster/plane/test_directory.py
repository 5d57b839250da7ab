"""GPU numbers: unique, stable over restarts, neighbours on one machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.plane.directory import Directory, Hello
from elastic_dit.errors import ClusterError
from elastic_dit.events import EngineJoined
from elastic_dit.request import Stage


def hello(name="w", node="n", index=0, instance="i", **fields):
    return Hello(
        name=name, node=node, index=index, kind="k", memory_bytes=1, instance=instance, **fields
    )


def test_each_machine_has_its_block():
    directory = Directory(slots_per_node=4)
    numbers = [
        directory.join(hello(f"{node}-{index}", node, index), f"{node}:{index}").gpu
        for node in "ab"
        for index in range(3)
    ]
    assert numbers == [0, 1, 2, 4, 5, 6]


def test_a_machine_with_more_gpus_than_slots_gets_a_second_block():
    directory = Directory(slots_per_node=2)
    numbers = [directory.join(hello(f"w{i}", "a", i), f"a:{i}").gpu for i in range(3)]
    other = directory.join(hello("x", "b", 0), "b:0").gpu
    assert (numbers, other) == ([0, 1, 2], 4)


def test_a_name_keeps_its_number_though_others_came():
    directory = Directory(slots_per_node=4)
    directory.join(hello("w-0", index=0), "a:0")
    directory.join(hello("w-1", index=1), "a:1")
    assert directory.leave("a:1") == 1
    directory.join(hello("v-0", index=0), "b:0")
    assert directory.at("b:0").gpu == 1
    assert directory.join(hello("w-1", index=1, instance="j"), "a:2").gpu == 2


def test_two_commands_on_one_machine_do_not_collide():
    directory = Directory(slots_per_node=4)
    numbers = [
        directory.join(hello(f"{command}-{index}", "n", index), f"{command}:{index}").gpu
        for command in ("one", "two")
        for index in range(2)
    ]
    assert numbers == [0, 1, 2, 3]


def test_looking_up():
    directory = Directory(slots_per_node=4)
    member = directory.join(hello("w-0", resident={("m", Stage.DIT)}), "a:0")
    assert directory.named("w-0") is directory.at("a:0") is member
    assert directory.address(member.gpu) == "a:0"
    assert directory.members == (member,)
    assert member.joined() == EngineJoined(
        gpu=0,
        name="w-0",
        node="n",
        kind="k",
        memory_bytes=1,
        resident=frozenset({("m", Stage.DIT)}),
    )
    assert "w-0 on n at a:0" in repr(directory)
    assert directory.leave("a:0") == 0
    assert directory.leave("a:0") is None
    assert directory.address(0) is directory.at("a:0") is directory.named("w-0") is None
    assert len(directory) == 0


@pytest.mark.parametrize(
    ("wire", "field"), [({}, "name"), (None, ""), ({**hello().model_dump(), "index": -1}, "index")]
)
def test_what_is_no_hello_is_said_to_be_none(wire, field):
    with pytest.raises(ClusterError, match=f"not an engine's hello: {field}"):
        Hello.read(wire)


workers = st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 2))


@given(st.lists(st.tuples(workers, st.booleans()), max_size=60))
def test_numbers_are_unique_and_blocks_belong_to_one_machine(moves):
    directory = Directory(slots_per_node=4)
    owner: dict[int, str] = {}
    for (node, index, command), joins in moves:
        address = f"{node}:{command}:{index}"
        if not joins or directory.at(address) is not None:
            directory.leave(address)
            assert directory.at(address) is None
            continue
        member = directory.join(hello(address, node, index), address)
        assert owner.setdefault(member.gpu // 4, node) == node
    numbers = [member.gpu for member in directory.members]
    assert len(set(numbers)) == len(numbers) == len(directory)
