from __future__ import annotations

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed

from elastic_dit.engine.group_store import GroupStore, check_torch, connect
from elastic_dit.engine.groups import MAX_GROUPS, Group, GroupKey, GroupTable
from elastic_dit.errors import GroupBroken, UnsupportedModel
from tests.engine.members import await_word, members

CPU = torch.device("cpu")
TIMEOUT_S = 30.0
PAIR = GroupKey((1, 3), 0)


def table(address: str, gpu: int, timeout_s: float = TIMEOUT_S) -> GroupTable:
    return GroupTable(connect(address), gpu, device=CPU, timeout_s=timeout_s)


def exchange(group: Group) -> dict[str, Any]:
    """All three collectives with shares that differ from member to member."""
    rows = [3, 0, 2][: group.size]
    mine = rows[group.rank]
    sent = torch.full((mine * group.size, 2), float(group.rank))
    part = torch.full((mine, 2), group.rank, dtype=torch.bfloat16)
    word = torch.tensor([group.rank + 5])
    return {
        "exchanged": group.all_to_all(sent, [mine] * group.size, rows)[:, 0].tolist(),
        "gathered": group.all_gather(part, rows)[:, 0].tolist(),
        "said": int(group.broadcast(word, root=1)),
    }


def test_members_with_any_numbers_exchange_unequal_shares() -> None:
    key = GroupKey((0, 2, 5), 4)
    with members() as start:
        results = start.run(lambda address, gpu: exchange(table(address, gpu).get(key)), key[0])
    for result in results:
        assert result == {
            "exchanged": [0.0, 0.0, 0.0, 2.0, 2.0],
            "gathered": [0.0, 0.0, 0.0, 2.0, 2.0],
            "said": 6,
        }


def test_a_group_is_formed_once_and_kept() -> None:
    def twice(address: str, gpu: int) -> dict[str, Any]:
        groups = table(address, gpu)
        first = groups.get(PAIR)
        start = time.perf_counter()
        same = all(groups.get(PAIR) is first for _ in range(100))
        return {"same": same, "cached_s": (time.perf_counter() - start) / 100, **exchange(first)}

    with members() as start:
        results = start.run(twice, PAIR.members)
    assert all(result["same"] for result in results)
    assert min(result["cached_s"] for result in results) < 1e-3


def test_a_new_epoch_makes_a_new_group() -> None:
    def both(address: str, gpu: int) -> bool:
        groups = table(address, gpu)
        old, new = groups.get(PAIR), groups.get(PAIR._replace(epoch=1))
        exchange(new)
        with pytest.raises(GroupBroken, match="newer"):
            exchange(old)
        return len(groups._groups) == 1

    with members() as start:
        assert start.run(both, PAIR.members) == [True, True]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_member_that_dies_or_hangs_breaks_the_group(number: signal.Signals) -> None:
    timeout_s = 2.0

    def meet(address: str, gpu: int) -> float:
        group = table(address, gpu, timeout_s).get(PAIR)
        exchange(group)
        if gpu == 3:
            os.kill(os.getpid(), number)
        start = time.monotonic()
        with pytest.raises(GroupBroken):
            exchange(group)
        assert group.broken
        return time.monotonic() - start

    with members() as start:
        survivor, _ = [start.start(meet, gpu) for gpu in PAIR.members]
        waited_s = survivor.result()
    assert waited_s < (1.0 if number is signal.SIGKILL else 2 * timeout_s + 2.0)


def test_a_waiting_member_is_released_when_its_peer_is_given_up() -> None:
    def meet(address: str, gpu: int) -> dict[str, Any]:
        groups = table(address, gpu)
        group = groups.get(PAIR)
        if gpu == 3:
            await_word()
            return {}
        news = threading.Timer(0.3, groups.abort_with, [3, "GPU 3 was declared lost"])
        news.start()
        start = time.monotonic()
        with pytest.raises(GroupBroken, match="GPU 3 was declared lost"):
            exchange(group)
        waited_s = time.monotonic() - start
        news.join()
        epoch = groups.epoch(PAIR.members)
        groups.close()  # must not wait for the exchange that the other never answered
        return {"waited_s": waited_s, "epoch": epoch, "closed_s": time.monotonic() - start}

    with members() as start:
        waiting, silent = [start.start(meet, gpu) for gpu in PAIR.members]
        result = waiting.result()
        silent.send("done")
        silent.result()
    assert 0.2 < result["waited_s"] <= result["closed_s"] < TIMEOUT_S / 2
    assert result["epoch"] == 3  # two processes started, one was lost


def test_survivors_and_a_new_process_form_groups_after_a_loss() -> None:
    def stay(address: str, gpu: int) -> list[Any]:
        groups = table(address, gpu)
        group = groups.get(GroupKey((0, 1, 2), 0))
        while group.broken is None:
            with suppress(GroupBroken):
                exchange(group)
        groups.drop(group, "a member died")
        smaller = exchange(groups.get(GroupKey((0, 1), 1)))
        return [smaller["said"], exchange(groups.get(GroupKey((0, 1, 2), 1)))["said"]]

    def die(address: str, gpu: int) -> None:
        exchange(table(address, gpu).get(GroupKey((0, 1, 2), 0)))
        os.kill(os.getpid(), signal.SIGKILL)

    def replace(address: str, gpu: int) -> int:
        return exchange(table(address, gpu).get(GroupKey((0, 1, 2), 1)))["said"]

    with members() as start:
        stayed = [start.start(stay, gpu) for gpu in (0, 1)]
        start.start(die, 2).process.join(TIMEOUT_S)
        replacement = start.start(replace, 2)
        assert [member.result() for member in stayed] == [[6, 6], [6, 6]]
        assert replacement.result() == 6


def test_a_member_that_never_comes_is_an_error_in_time() -> None:
    def alone(address: str, gpu: int) -> str:
        with pytest.raises(GroupBroken) as broken:
            table(address, gpu, 0.5).get(PAIR)
        return str(broken.value)

    with members() as start:
        message = start.start(alone, 1).result()
    assert message.startswith("group 1,3 epoch 0: did not form")


def test_the_epoch_counts_breaks_and_new_processes() -> None:
    def count(address: str, gpu: int) -> list[int]:
        first = table(address, gpu)
        epochs = [first.epoch((0, 1))]
        first.mark_broken((0, 1))
        epochs.append(first.epoch((0, 1)))
        first.mark_broken((0, 2), lost=[1])
        epochs.append(first.epoch((0, 1)))
        again = table(address, gpu)
        return [*epochs, again.epoch((0, 1)), again.epoch((2, 3))]

    with members() as start:
        assert start.start(count, 0).result() == [1, 2, 3, 4, 0]


def test_a_table_keeps_a_limited_number_of_groups() -> None:
    class Kept(GroupTable):
        def _form(self, key: GroupKey) -> Group:
            return Group(key, self.gpu, None, CPU)

    store = torch.distributed.HashStore()
    groups = Kept(store, 0, device=CPU, timeout_s=1.0)
    first = groups.get(GroupKey((0, 1), groups.epoch((0, 1))))
    for other in range(2, MAX_GROUPS + 2):
        groups.get(GroupKey((0, other), 0))
    assert len(groups._groups) == MAX_GROUPS
    assert first.broken == "too many groups"
    assert groups.epoch((0, 1)) == first.key.epoch + 1, "the other member must not use it again"
    groups.close()
    assert not groups._groups


def test_the_store_listens_where_it_was_told_and_forgets_what_is_over() -> None:
    def host(_: str, __: int) -> dict[str, Any]:
        store = GroupStore("127.0.0.1")
        client = connect(store.address)
        client.set("run/a/1", "x")
        client.set("run/b/1", "x")
        forgotten = store.forget("run/a/")
        left = client.check(["run/b/1"]) and not client.check(["run/a/1"])
        others = socket.socket()
        others.settimeout(2.0)
        refused = others.connect_ex(("127.0.0.2", store.port)) != 0
        return {"forgotten": forgotten, "left": left, "refused": refused}

    with members() as start:
        result = start.start(host, 0).result()
    assert result == {"forgotten": 1, "left": True, "refused": True}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_group_meets_and_talks_over_either_internet_protocol(host: str) -> None:
    is_6 = ":" in host
    try:
        socket.create_server((host, 0), family=[socket.AF_INET, socket.AF_INET6][is_6]).close()
    except OSError:
        pytest.skip("this machine has no IPv6")

    def meet(_: str, __: int) -> tuple[str, list[int]]:
        store = GroupStore(host)
        tables = [
            GroupTable(connect(store.address), gpu, device=CPU, timeout_s=TIMEOUT_S, host=host)
            for gpu in PAIR.members
        ]
        words = [torch.tensor([gpu]) for gpu in PAIR.members]
        with ThreadPoolExecutor() as threads:
            groups = threads.map(lambda table: table.get(PAIR), tables)
            said = threads.map(lambda group, word: group.broadcast(word, root=1), groups, words)
        return store.address.replace(str(store.port), "PORT"), [int(word) for word in said]

    with members() as start:
        where = f"[{host}]:PORT" if is_6 else f"{host}:PORT"
        assert start.start(meet, 0).result() == (where, [3, 3])


def test_a_store_that_is_not_there_is_named() -> None:
    def search(_: str, __: int) -> str:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            address = f"127.0.0.1:{gone.getsockname()[1]}"
        with pytest.raises(GroupBroken) as broken:
            connect(address, timeout_s=0.5)
        return str(broken.value).replace(address, "ADDRESS")

    with members() as start:
        assert "ADDRESS does not answer" in start.start(search, 0).result()


def test_a_torch_that_lacks_something_is_refused() -> None:
    check_torch()
    kinds = {name: getattr(torch.distributed, name) for name in ("TCPStore", "ProcessGroupGloo")}
    without = SimpleNamespace(**{**kinds, "ProcessGroupGloo": object})
    with pytest.raises(UnsupportedModel, match=r"ProcessGroupGloo\._Options"):
        check_torch(without)


def test_gpus_take_nccl_and_are_released_from_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a GPU: what is asked of torch's NCCL backend."""
    calls: list[Any] = []
    released = threading.Event()

    class Options:
        config = SimpleNamespace(blocking=1)

    class Nccl:
        def __init__(self, store: Any, rank: int, size: int, options: Options) -> None:
            calls.append((rank, size, options._timeout.total_seconds(), options.config.blocking))

        def eager_connect_single_device(self, device: torch.device) -> None:
            calls.append(str(device))

        def abort(self) -> None:
            calls.append(threading.current_thread() is threading.main_thread())
            released.set()

    Nccl.Options = Options
    dist = SimpleNamespace(**vars(torch.distributed), ProcessGroupNCCL=Nccl)
    monkeypatch.setattr("elastic_dit.engine.groups.dist", dist)
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "")  # so that it is put back
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING")
    store = torch.distributed.HashStore()
    groups = GroupTable(store, 3, device=torch.device("cuda:1"), timeout_s=7.0)
    group = groups.get(PAIR)
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert calls == [(1, 2, 7.0, 0), "cuda:1"]
    groups.abort_with(1, "GPU 1 was lost")
    assert released.wait(5.0)
    assert calls[2:] == [False]
    assert group.broken == "GPU 1 was lost"


def test_members_say_what_they_are() -> None:
    group = Group(PAIR, 3, None, CPU)
    assert repr(group) == "<Group 1,3 epoch 0, rank 1>"
    group.abort("over")
    assert "broken: over" in repr(group)
