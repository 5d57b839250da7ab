"""A session's state from one member of a group to all others, over the group itself."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, cast

import msgpack
import torch

from elastic_dit.engine.groups import Group
from elastic_dit.engine.payload import pack, unpack
from elastic_dit.engine.placement import to_host
from elastic_dit.engine.protocol import SNAPSHOT, Checkpoint
from elastic_dit.engine.session import Session

__all__ = ["broadcast_state", "frozen", "hand_over"]

ALIGNMENT_BYTES = 64
"""Where each tensor begins in the buffer, so that it can be used where it arrived."""


def broadcast_state(group: Group, state: Any, root: int) -> Any:
    """`state` as the member of rank `root` has it.

    It goes out as a length, a header and one buffer with all tensors: a snapshot has dozens of
    small ones, and each collective has a fixed cost.

    Parameters
    ----------
    group : Group
    state : payload
        See `elastic_dit.engine.payload`; only read at `root`.
    root : int

    Returns
    -------
    payload
        At `root` the state itself; elsewhere a copy in host memory.

    Raises
    ------
    GroupBroken
    TransferError
        Where the state is no payload.
    """
    if group.rank != root:
        return _receive(group, root)
    _send(group, state)
    return state


def _send(group: Group, state: Any) -> None:
    header, frames = pack(state)
    sizes = [frame.nbytes for frame in frames]
    meta = _bytes_of(msgpack.packb([header, sizes]))
    group.broadcast(torch.tensor([meta.numel()]), group.rank)
    group.broadcast(meta, group.rank)
    buffer = torch.zeros(_offsets(sizes)[-1], dtype=torch.uint8)
    for start, frame in zip(_offsets(sizes), frames, strict=False):
        if frame.nbytes:
            buffer[start : start + frame.nbytes] = _bytes_of(frame)
    if buffer.numel():
        group.broadcast(buffer, group.rank)


def _receive(group: Group, root: int) -> Any:
    length = int(group.broadcast(torch.zeros(1, dtype=torch.int64), root))
    meta = group.broadcast(torch.zeros(length, dtype=torch.uint8), root)
    header, sizes = msgpack.unpackb(meta.numpy().tobytes())
    offsets = _offsets(sizes)
    buffer = torch.zeros(offsets[-1], dtype=torch.uint8)
    if buffer.numel():
        buffer = group.broadcast(buffer, root)
    memory: Any = memoryview(cast("Any", buffer.numpy()))
    pieces = zip(offsets, sizes, strict=False)
    return unpack(header, [memory[start : start + size] for start, size in pieces])


def frozen(state: Any) -> Any:
    """`state` with its random generators copied, which a step would otherwise advance.

    Tensors stay shared: samplers replace them and never write into them.

    >>> generator = torch.Generator().manual_seed(1)
    >>> kept = frozen({"generator": generator})
    >>> _ = torch.rand(3, generator=generator)
    >>> torch.equal(kept["generator"].get_state(), generator.get_state())
    False
    """
    if isinstance(state, dict):
        return {key: frozen(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([frozen(value) for value in state])
    return state.clone_state() if isinstance(state, torch.Generator) else state


def hand_over(session: Session, order: Checkpoint) -> None:
    """Give the state of a session that goes on to whoever keeps it."""
    order.take(to_host({SNAPSHOT: frozen(session.snapshot())}), session.step_index)


def _offsets(sizes: list[int]) -> list[int]:
    """Start of each frame, and the end of the last."""
    padded = [-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes]
    return [0, *accumulate(padded)]


def _bytes_of(memory: bytes | memoryview) -> torch.Tensor:
    writable = bytearray(memory) if memoryview(memory).readonly else memory
    return torch.frombuffer(writable, dtype=torch.uint8)
