from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from elastic_dit.engine.ledger import TURN_SETTLES, Generation, Ledger, shrunk
from elastic_dit.errors import GroupBroken

SETTLE_S = 0.2
DEADLINE_S = 20.0


def ledger(store: Any, gpu: int, settle_s: float = SETTLE_S) -> Ledger:
    return Ledger(store, "r/1", gpu, settle_s=settle_s)


def choose(present: Mapping[int, int]) -> Generation:
    return Generation(number=1, members=tuple(sorted(present)), step=max(present.values()))


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    results: dict[int, Any] = {}

    def run(index: int) -> None:
        try:
            results[index] = functions[index]()
        except GroupBroken as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    return [results[i] for i in range(len(functions))]


def agree(store: Any, gpu: int, step: int, lost: frozenset[int] = frozenset()) -> Generation:
    mine = ledger(store, gpu)
    return mine.agree(1, members=(0, 1, 2), step=step, lost=lambda: lost, choose=choose)


def test_all_survivors_come_to_the_same_generation() -> None:
    store = HashStore()
    results = at_once(*(lambda gpu=gpu: agree(store, gpu, step=gpu) for gpu in (0, 1, 2)))
    assert results == [Generation(number=1, members=(0, 1, 2), step=2)] * 3


def test_nobody_waits_for_the_dead_that_are_known() -> None:
    store = HashStore()
    start = time.monotonic()
    slow = Ledger(store, "r/1", 0, settle_s=DEADLINE_S)
    found = slow.agree(1, members=(0, 1, 2), step=4, lost=lambda: frozenset({1, 2}), choose=choose)
    assert found == Generation(number=1, members=(0,), step=4)
    assert time.monotonic() - start < DEADLINE_S / 2


def test_a_silent_member_is_waited_for_as_long_as_agreed() -> None:
    start = time.monotonic()
    assert agree(HashStore(), 2, step=1).members == (2,)
    assert time.monotonic() - start >= SETTLE_S


def test_another_leads_where_the_leader_dies() -> None:
    store = HashStore()
    store.compare_set("run/r/1/1/leader/0", "", "0")  # GPU 0 was quickest, and died
    results = at_once(lambda: agree(store, 1, step=3), lambda: agree(store, 2, step=3))
    assert results == [Generation(number=1, members=(1, 2), step=3)] * 2


def test_survivors_of_dead_leaders_only_give_up() -> None:
    store = HashStore()
    for turn in range(3):
        store.compare_set(f"run/r/1/1/leader/{turn}", "", "7")
    start = time.monotonic()
    with pytest.raises(GroupBroken, match="did not agree"):
        agree(store, 1, step=3)
    assert time.monotonic() - start < 3 * TURN_SETTLES * SETTLE_S + 5.0


def test_what_the_master_wrote_first_stands() -> None:
    store = HashStore()
    written = ledger(store, 0).propose(Generation(number=1, members=(0, 1), ticket="t"))
    assert agree(store, 2, step=1) == written == ledger(store, 1).read(1)
    assert ledger(store, 1).read(2) is None


def test_a_joiner_is_admitted_sent_away_or_gives_up() -> None:
    store = HashStore()
    master, joiner = ledger(store, 0), ledger(store, 3)
    assert not master.all_knocked("t", [3], patience_s=0.0)
    joiner.knock("t")
    assert master.all_knocked("t", [3], patience_s=0.0)
    stands = master.propose(Generation(number=1, members=(0, 3), ticket="t"))
    master.admit("t", [3], 1)
    assert joiner.admission("t", DEADLINE_S, lambda: False) == stands
    master.withdraw("u", [3])
    assert joiner.admission("u", DEADLINE_S, lambda: False) is None
    assert joiner.admission("v", DEADLINE_S, lambda: True) is None
    assert joiner.admission("v", 0.05, lambda: False) is None


def test_runs_do_not_see_each_other() -> None:
    store = HashStore()
    ledger(store, 0).propose(Generation(number=1, members=(0,)))
    assert Ledger(store, "r/2", 0, settle_s=SETTLE_S).read(1) is None


def test_a_store_that_fails_is_a_broken_group() -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("connection reset")

    with pytest.raises(GroupBroken, match="the store does not answer: connection reset"):
        ledger(Gone(), 0).read(1)


@given(
    survivors=st.sets(st.integers(0, 15), min_size=1, max_size=8),
    data=st.data(),
    limit=st.sampled_from([1, 2, 4, 8]),
)
def test_what_is_left_is_allowed_and_has_the_state(
    survivors: set[int], data: st.DataObject, limit: int
) -> None:
    present = sorted(survivors)
    sources = sorted(data.draw(st.sets(st.sampled_from(present), min_size=1)))
    dops = [dop for dop in (1, 2, 4, 8) if dop <= limit]
    left = shrunk(present, sources, dops)
    assert len(left) == max(dop for dop in dops if dop <= len(present))
    assert set(left) <= survivors
    assert set(left) & set(sources)
    assert list(left) == sorted(left)
