from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import torch

from elastic_dit.engine.group_context import GroupSeat
from elastic_dit.engine.group_store import GroupStore, connect
from elastic_dit.engine.groups import GroupTable
from elastic_dit.engine.groups_ahead import aligned_blocks, keep_formed
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.state import GpuId

TIMEOUT_S = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def member(store: GroupStore, gpu: GpuId) -> GroupTable:
    client = connect(store.address)
    return GroupTable(client, gpu, device=torch.device("cpu"), timeout_s=TIMEOUT_S)


def is_formed(table: GroupTable, members: tuple[GpuId, ...]) -> bool:
    return table.has(table.key(members))


def test_groups_form_once_all_members_are_there_and_again_after_one_was_replaced() -> None:
    store = GroupStore()
    tables = [member(store, gpu) for gpu in range(3)]
    kept = [keep_formed(table, tuple(aligned_blocks(table.gpu, 4))) for table in tables]
    until(lambda: all(is_formed(table, (0, 1)) for table in tables[:2]))
    assert not is_formed(tables[0], (0, 1, 2, 3)), "GPU 3 is not there"
    assert not is_formed(tables[2], (2, 3))

    tables.append(member(store, 3))
    kept.append(keep_formed(tables[3], tuple(aligned_blocks(3, 4))))
    until(lambda: all(is_formed(table, (0, 1, 2, 3)) for table in tables))
    former = [table.key((0, 1)) for table in tables[:2]]

    tables[1].close()
    tables[0].abort_with(1, "its process died")
    assert not is_formed(tables[0], (0, 1))
    tables[1] = member(store, 1)
    kept.append(keep_formed(tables[1], tuple(aligned_blocks(1, 4))))
    until(lambda: all(is_formed(table, (0, 1, 2, 3)) for table in tables))
    assert all(tables[0].key((0, 1)).epoch > key.epoch for key in former)

    for table in tables:
        table.close()
    for thread in kept:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_an_engine_that_was_told_where_forms_its_groups_before_any_request() -> None:
    store = GroupStore()
    before = threading.active_count()
    with (
        closing(TorchEngine([], "cpu", groups_ahead=True)) as first,
        closing(TorchEngine([], "cpu", groups_ahead=True)) as second,
        closing(TorchEngine([], "cpu")) as third,
    ):
        for gpu, engine in enumerate((first, second, third)):
            engine.meet(GroupSeat(gpu=gpu, run="", store=store.address, max_dop=4))
        tables = [engine._table for engine in (first, second)]
        until(lambda: all(table and is_formed(table, (0, 1)) for table in tables))
        assert third._table is None, "gloo forms a group in no time"
    until(lambda: threading.active_count() <= before)
