"""Checkpoints: snapshots of running DiT stages, and who keeps copies of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.control.groups import Group
from elastic_dit.control.orders import Orders
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.events import ArtifactCopied, Command, Replicate
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["Checkpoints"]

_PATIENCE = 3
"""Checkpoints made while one copy is on its way, until that is given up: its puller may hang."""


class Checkpoints:
    """Lets another GPU hold a copy of the newest snapshot of every running DiT stage.

    One copy per request is on its way at a time. A snapshot made meanwhile is let go, so that a
    slow network makes copies rarer and never prevents them.

    Parameters
    ----------
    every : int
        Denoising steps between two snapshots.
    table, pool, orders
        The controller's parts.
    emit : callable
        Takes the commands.
    """

    def __init__(
        self,
        every: int,
        table: RequestTable,
        pool: GpuPool,
        orders: Orders,
        emit: Callable[[Command], None],
    ) -> None:
        self._every = every
        self._table = table
        self._pool = pool
        self._orders = orders
        self._emit = emit

    def __repr__(self) -> str:
        return f"<Checkpoints every {self._every} steps>"

    def made(self, record: RequestRecord, group: Group, snapshot: ArtifactRef, now: float) -> None:
        """The master of a running group keeps a new snapshot."""
        if not record.first_sight(snapshot):
            return
        copying, known = record.copying, record.snapshot
        slow = copying is not None and snapshot.step - copying.step < _PATIENCE * self._every
        old = known is not None and snapshot.step <= known.step
        if slow or old or snapshot.gpu not in self._pool:
            self._orders.release((snapshot,))
            return
        self._orders.release(self._table.drop_copy(record))
        self._orders.release(self._table.keep_snapshot(record, snapshot))
        keeper = self._keeper(group, snapshot.gpu)
        if keeper is not None:
            self._table.expect_copy(record, replace(snapshot, gpu=keeper))
            self._emit(Replicate(artifact=snapshot, gpu=keeper))
            reason = f"state after step {snapshot.step}"
            self._orders.note(now, "checkpoint", record, (keeper,), reason)

    def copied(self, event: ArtifactCopied) -> None:
        """A copy has arrived, or will not."""
        record = self._table.live.get(event.copy.request_id)
        if record is None or record.copying != event.copy:
            return  # it was let go when it was no longer expected
        waits_without = record.group is None and record.snapshot is None
        if event.failure:
            self._table.drop_copy(record)
        elif waits_without:
            self._orders.release(self._table.drop_copy(record))
        else:
            self._orders.release(self._table.keep_copy(record))

    def _keeper(self, group: Group, master: GpuId) -> GpuId | None:
        """Who pulls: no member if possible, on another machine if possible, with least to keep."""
        node = self._pool[master].node

        def preference(gpu: Gpu) -> tuple[bool, bool, int, GpuId]:
            held = self._table.count_on(gpu.gpu)
            return gpu.gpu in group.held, gpu.node == node, held, gpu.gpu

        others = (gpu for gpu in self._pool if gpu.gpu != master and not gpu.retiring)
        best = min(others, key=preference, default=None)
        return None if best is None else best.gpu
