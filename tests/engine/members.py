"""Members of groups as real processes: forked, bounded, and killed at the end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from elastic_dit.engine.payload import pack, unpack

__all__ = ["Member", "Members", "await_word", "members", "tell"]

DEADLINE_S = 60.0
_pipe: Any = None  # in a member: its end towards the test
CONTEXT = multiprocessing.get_context("fork")  # children share the import of torch


class Member:
    """One process, whose function gets the store's address and its GPU number."""

    def __init__(self, function: Callable[..., Any], address: str, gpu: int, args: tuple) -> None:
        self._ours, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(
            target=_child, args=(theirs, function, address, gpu, args), daemon=True
        )
        self.process.start()
        theirs.close()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def send(self, message: Any) -> None:
        """What the function gets from `receive`."""
        self._ours.send(message)

    def hears(self, word: str, deadline_s: float = DEADLINE_S) -> bool:
        """Whether the next thing the function told (`tell`) is `word`."""
        return self._ours.poll(deadline_s) and self._ours.recv() == word

    def result(self, deadline_s: float = DEADLINE_S) -> Any:
        """What the function returned; fails where it raised or took too long."""
        assert self._ours.poll(deadline_s), "a member gave no answer in time"
        ok, answer = self._ours.recv()
        assert ok, answer
        return unpack(*answer)

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(DEADLINE_S)


class Members:
    def __init__(self, address: str, host: Any) -> None:
        self.address = address
        self.host = host
        self.all: list[Member] = []

    def start(self, function: Callable[..., Any], gpu: int, *args: Any) -> Member:
        member = Member(function, self.address, gpu, args)
        self.all.append(member)
        return member

    def run(self, function: Callable[..., Any], gpus: tuple[int, ...], *args: Any) -> list[Any]:
        """Results of one function on several members at once."""
        started = [self.start(function, gpu, *args) for gpu in gpus]
        return [member.result() for member in started]


@contextmanager
def members() -> Iterator[Members]:
    """A store in a process of its own, and a way to start members."""
    ours, theirs = CONTEXT.Pipe()
    host = CONTEXT.Process(target=_host, args=(theirs,), daemon=True)
    host.start()
    assert ours.poll(DEADLINE_S), "the store did not start"
    group = Members(ours.recv(), host)
    try:
        yield group
    finally:
        for member in group.all:
            member.end()
        host.kill()
        host.join(DEADLINE_S)


def tell(word: str) -> None:
    """In a member: let the test go on from `Member.hears`."""
    _pipe.send(word)


def await_word() -> None:
    """In a member: wait for `Member.send`."""
    assert _pipe.poll(DEADLINE_S), "the test said nothing in time"
    _pipe.recv()


def _host(pipe: Any) -> None:
    from elastic_dit.engine.group_store import GroupStore

    store = GroupStore()
    pipe.send(store.address)
    signal.pause()


def _child(pipe: Any, function: Callable[..., Any], address: str, gpu: int, args: tuple) -> None:
    import torch

    global _pipe
    _pipe = pipe
    torch.set_num_threads(1)
    torch.manual_seed(gpu)  # members must not lean on a common state of the global generator
    try:
        header, frames = pack(function(address, gpu, *args))
        pipe.send((True, (header, [bytes(frame) for frame in frames])))
    except BaseException:
        pipe.send((False, f"GPU {gpu}: {traceback.format_exc()}"))
    os._exit(0)
