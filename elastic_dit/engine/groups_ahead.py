"""Groups formed before a request needs them.

The first NCCL communicator of a set of GPUs takes seconds, which a promotion would stand still
for; DDiT §4.3 therefore fills its connection table in advance. Only aligned blocks are asked for
by the dispatcher, so that a machine of 8 GPUs has 7 groups, 3 of them at each GPU.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from elastic_dit.engine.groups import GroupTable
from elastic_dit.errors import GroupBroken
from elastic_dit.state import GpuId

__all__ = ["aligned_blocks", "keep_formed"]

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often a member looks whether the others of a group that it lacks are there, seconds."""


def aligned_blocks(gpu: GpuId, largest: int) -> Iterator[tuple[GpuId, ...]]:
    """Blocks of 2, 4, 8 … up to `largest` GPUs that `gpu` is in.

    Examples
    --------
    >>> list(aligned_blocks(5, largest=4))
    [(4, 5), (4, 5, 6, 7)]
    """
    size = 2
    while size <= largest:
        first = gpu - gpu % size
        yield tuple(range(first, first + size))
        size *= 2


def keep_formed(table: GroupTable, blocks: Sequence[tuple[GpuId, ...]]) -> threading.Thread:
    """Keep the groups of `blocks` formed, in the background, until the table is closed.

    A group is formed as soon as all of its members want it, and again after one broke or one of
    its members was replaced. Who needs one earlier forms it, or waits until this has.

    Parameters
    ----------
    table : GroupTable
    blocks : sequence of tuple of int
        In the same order at every member.
    """

    def keep() -> None:
        while True:
            for members in blocks:
                with suppress(GroupBroken):  # a store that is gone, or a member that just died
                    _meet(table, members)
            if table.closed.wait(LOOK_S):
                return

    thread = threading.Thread(target=keep, name=f"groups of GPU {table.gpu}", daemon=True)
    thread.start()
    return thread


def _meet(table: GroupTable, members: tuple[GpuId, ...]) -> None:
    key = table.key(members)
    if not table.has(key) and table.all_want(key):
        start = time.perf_counter()
        table.get(key)
        seconds = time.perf_counter() - start
        logger.info("GPU %d formed group %s in %.2f s", table.gpu, key, seconds)
