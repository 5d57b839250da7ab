"""The connection table: groups of GPUs that exchange tensors, made on demand and kept.

A group is one torch backend (gloo on CPUs, NCCL on GPUs) built straight on a prefix of a
key-value store, with no world around it: members may appear, die and be replaced at any time,
and a group of the survivors takes milliseconds. What torch offers above that (a default world,
``new_group``, ``split_group``) admits neither late members nor replacements.

A group is known by its members and an *epoch*. The epoch rises when a group of these members
broke or when the process behind one of them is new, so nobody ever meets stale addresses.
DDiT §4.3 calls the table the connection table and keys it by GPU ids alone.

Torch's unofficial surface that this needs is checked by `group_store.check_torch`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed

from elastic_dit.engine.group_store import check_torch, first_line
from elastic_dit.errors import GroupBroken
from elastic_dit.state import GpuId

__all__ = ["Group", "GroupKey", "GroupTable"]

dist: Any = torch.distributed  # its types leave out half of what it exports

LOOK_S = 0.2
"""How often a member that waits for the others looks whether its group was given up, seconds."""
FORM_S = 10.0
"""Longest wait for the other members of a new group, seconds; all come from the same boundary."""
MAX_GROUPS = 64
"""Groups a table keeps; a machine of 8 GPUs has 7 aligned blocks, so this is never met there."""


class GroupKey(NamedTuple):
    """Name of a group.

    Attributes
    ----------
    members : tuple of int
        GPU ids in ascending order, the master first.
    epoch : int

    Examples
    --------
    >>> str(GroupKey((1, 3), 2))
    '1,3 epoch 2'
    """

    members: tuple[GpuId, ...]
    epoch: int

    def __str__(self) -> str:
        return f"{','.join(map(str, self.members))} epoch {self.epoch}"


class Group:
    """One member's end of a group.

    Collectives are blocking for the caller (on NCCL: for the GPU) and raise `GroupBroken` when
    another member died, when the group was given up by `abort`, or when its time-out passed.
    Tensors that the backend cannot reach, such as GPU tensors under gloo, go through the host.

    Attributes
    ----------
    key : GroupKey
    rank, size : int
        This member's place, and how many there are.
    """

    def __init__(self, key: GroupKey, gpu: GpuId, backend: Any, device: torch.device) -> None:
        self.key = key
        self.rank = key.members.index(gpu)
        self.size = len(key.members)
        self._backend = backend
        self._device = device
        self._cause: str | None = None

    def __repr__(self) -> str:
        state = f", broken: {self._cause}" if self._cause else ""
        return f"<Group {self.key}, rank {self.rank}{state}>"

    @property
    def broken(self) -> str | None:
        """Why the group can no longer be used; None while it can."""
        return self._cause

    def all_to_all(
        self, send: torch.Tensor, send_rows: Sequence[int], receive_rows: Sequence[int]
    ) -> torch.Tensor:
        """Exchange rows with every member.

        Parameters
        ----------
        send : tensor, shape [sum(send_rows), ...]
            Rows for each member in the order of ranks.
        send_rows, receive_rows : sequence of int
            Rows to and from each member; may be 0.

        Returns
        -------
        tensor, shape [sum(receive_rows), ...]
            On the device of `send`.
        """
        source = send.contiguous().to(self._device)
        target = source.new_empty((sum(receive_rows), *source.shape[1:]))
        even = len({*send_rows, *receive_rows}) == 1
        splits = ([], []) if even else (list(receive_rows), list(send_rows))
        self._run(lambda backend: backend.alltoall_base(target, source, *splits))
        return target.to(send.device)

    def all_gather(self, part: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """Put together the members' rows.

        Parameters
        ----------
        part : tensor, shape [rows[rank], ...]
        rows : sequence of int
            Rows of each member.

        Returns
        -------
        tensor, shape [sum(rows), ...]
            The same at every member.
        """
        most = max(rows)
        source = part.new_zeros((most, *part.shape[1:]), device=self._device)
        source[: part.shape[0]] = part
        target = source.new_empty((self.size * most, *source.shape[1:]))
        self._run(lambda backend: backend._allgather_base(target, source))
        if any(count != most for count in rows):
            chunks = zip(torch.split(target, most), rows, strict=True)
            target = torch.cat([chunk[:count] for chunk, count in chunks])
        return target.to(part.device)

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """`tensor` as the member of rank `root` has it; same shape and dtype at all."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        moved = tensor.contiguous().to(self._device)
        self._run(lambda backend: backend.broadcast([moved], options))
        return moved.to(tensor.device)

    def abort(self, cause: str) -> None:
        """Give the group up, from any thread: who waits in it is released with `GroupBroken`.

        On NCCL all waiting kernels end at once; on gloo the waiting member looks every `LOOK_S`.
        """
        if self._cause is None:
            self._cause = cause
            if self._device.type == "cuda" and (backend := self._backend) is not None:
                # aborts of several communicators can wait for each other: all at once
                threading.Thread(target=backend.abort, name="abort group", daemon=True).start()

    def close(self, cause: str = "closed") -> None:
        """Give the group up and hang up on the others, who notice it at once."""
        self.abort(cause)
        held, self._backend = [self._backend], None
        # the backend's end waits for what is in flight, at most the time-out: not here
        threading.Thread(target=held.clear, name=f"close group {self.key}", daemon=True).start()
        del held

    def _run(self, start: Callable[[Any], Any]) -> None:
        backend = self._backend  # taken first: `close` tells the cause before it lets go
        self._check()
        try:
            self._wait(start(backend))
        except RuntimeError as error:
            self.abort(first_line(error))
        self._check()

    def _wait(self, work: Any) -> None:
        if self._device.type == "cuda":
            work.wait()  # orders the stream; with a time-out it would block the host
            return
        while True:
            try:
                work.wait(timedelta(seconds=LOOK_S))
                return
            except RuntimeError:
                if self._cause is not None:
                    return
                if work.is_completed():
                    work.wait()  # raises what really happened, unless it was done just now
                    return

    def _check(self) -> None:
        if self._cause is not None:
            raise GroupBroken(str(self.key), self._cause)


class GroupTable:
    """One GPU's groups, made when first asked for and kept for the next time.

    Parameters
    ----------
    store : torch.distributed.Store
        Client of the `GroupStore` (`connect`).
    gpu : int
        This GPU.
    device : torch.device
        ``cuda:N`` takes NCCL, anything else gloo.
    host : str
        This machine's address for the other members.
    timeout_s : float
        Longest wait of any collective, seconds; should be several times the longest step.

    Notes
    -----
    `get` must be called by all members at about the same time and with the same key; that they
    agree is the business of `elastic_dit.engine.ledger`.
    """

    def __init__(
        self,
        store: Any,
        gpu: GpuId,
        *,
        device: torch.device,
        host: str = "127.0.0.1",
        timeout_s: float,
    ) -> None:
        check_torch()
        self.gpu = gpu
        self.device = device if device.type == "cuda" else torch.device("cpu")
        self.timeout_s = timeout_s
        self._host = host
        self._store = store
        self._groups: dict[tuple[GpuId, ...], Group] = {}
        self._lock = threading.Lock()
        self._forming: dict[tuple[GpuId, ...], threading.Lock] = {}
        self.closed = threading.Event()
        """Set once no group is wanted here any more."""
        self._count(_incarnation(gpu), 1)

    def __repr__(self) -> str:
        return f"<GroupTable of GPU {self.gpu}: {len(self._groups)} groups>"

    @property
    def store(self) -> Any:
        """The client of the store."""
        return self._store

    def epoch(self, members: Sequence[GpuId]) -> int:
        """Epoch that a group of `members` has now.

        It counts the breaks of groups with these members and the starts of each one's process.
        """
        counters = [_breaks(members), *map(_incarnation, members)]
        return sum(self._count(counter, 0) for counter in counters)

    def key(self, members: Sequence[GpuId]) -> GroupKey:
        """Name of the group of `members` as of now."""
        return GroupKey(tuple(members), self.epoch(members))

    def has(self, key: GroupKey) -> bool:
        """Whether a group of that name is formed and unbroken."""
        group = self._groups.get(key.members)
        return group is not None and group.key == key and group.broken is None

    def all_want(self, key: GroupKey) -> bool:
        """Say that this GPU wants a group; whether all of its members do."""
        wants = [f"want/{key.epoch}/{','.join(map(str, key.members))}/{gpu}" for gpu in key.members]
        self._ask(lambda: self._store.set(wants[key.members.index(self.gpu)], "1"))
        return bool(self._ask(lambda: self._store.check(wants)))

    def mark_broken(self, members: Sequence[GpuId], lost: Iterable[GpuId] = ()) -> None:
        """Let the epoch rise for `members`, and for every group that one of `lost` is in."""
        for counter in [_breaks(members), *map(_incarnation, lost)]:
            self._count(counter, 1)

    def get(self, key: GroupKey) -> Group:
        """The group of that name, formed now if it is new here.

        Raises
        ------
        GroupBroken
            Where another member did not come within the time-out.
        """
        with self._lock:
            forming = self._forming.setdefault(key.members, threading.Lock())
        with forming:
            group = self._groups.get(key.members)
            if group is not None and (group.key != key or group.broken):
                self.drop(group, "its members have a newer group")
                group = None
            if group is None:
                self._make_room()
                group = self._groups[key.members] = self._form(key)
            if self.closed.is_set():
                self.drop(group, "closed")
            return group

    def drop(self, group: Group, cause: str) -> None:
        """Hang up and forget a group."""
        if self._groups.get(group.key.members) is group:
            del self._groups[group.key.members]
        group.close(cause)

    def abort_with(self, gpu: GpuId, cause: str) -> None:
        """Give up every group that a lost GPU is in; from any thread, all before any closes.

        On NCCL nothing else tells a member that its peer died. The epoch rises, so that a GPU
        that was given up wrongly does not meet others in a group that only it still believes in.
        """
        for group in list(self._groups.values()):
            if gpu in group.key.members:
                group.abort(cause)
        with suppress(GroupBroken):  # without a store no group forms anyway
            self._count(_incarnation(gpu), 1)

    def close(self) -> None:
        """Hang up on everybody."""
        self.closed.set()
        for group in list(self._groups.values()):
            self.drop(group, "closed")

    def _count(self, counter: str, more: int) -> int:
        return int(self._ask(lambda: self._store.add(counter, more)))

    @staticmethod
    def _ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RuntimeError as error:
            raise GroupBroken("store", f"it does not answer: {first_line(error)}") from None

    def _make_room(self) -> None:
        if len(self._groups) < MAX_GROUPS:
            return
        oldest = next(iter(self._groups.values()))
        self.mark_broken(oldest.key.members)  # the others must not expect it here any more
        self.drop(oldest, "too many groups")

    def _form(self, key: GroupKey) -> Group:
        prefix = f"group/{key.epoch}/{','.join(map(str, key.members))}"
        make = self._nccl if self.device.type == "cuda" else self._gloo
        try:
            store = dist.PrefixStore(prefix, self._store.clone())
            backend = make(store, key.members.index(self.gpu), len(key.members))
        except RuntimeError as error:
            with suppress(GroupBroken):  # addresses left under this epoch must not be met again
                self.mark_broken(key.members)
            raise GroupBroken(str(key), f"did not form: {first_line(error)}") from None
        return Group(key, self.gpu, backend, self.device)

    def _gloo(self, store: Any, rank: int, size: int) -> Any:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._host)]
        options._timeout = timedelta(seconds=min(self.timeout_s, FORM_S))
        backend = dist.ProcessGroupGloo(store, rank, size, options)
        backend._set_default_timeout(timedelta(seconds=self.timeout_s))
        return backend

    def _nccl(self, store: Any, rank: int, size: int) -> Any:
        # torch would end the process when a collective fails or runs out of time; we regroup
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        options.config.blocking = 0  # or `abort` would wait for a member that never comes
        backend = dist.ProcessGroupNCCL(store, rank, size, options)
        backend.eager_connect_single_device(self.device)
        return backend


def _incarnation(gpu: GpuId) -> str:
    return f"incarnation/{gpu}"


def _breaks(members: Sequence[GpuId]) -> str:
    return f"breaks/{','.join(map(str, members))}"
