"""What the desks of one engine share: what they work with, and whether they begin anything yet."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.engine_host import EngineHost
from elastic_dit.cluster.worker.outbox import Outbox
from elastic_dit.cluster.worker.snapshot_desk import SnapshotDesk
from elastic_dit.cluster.worker.transfer import Inbox
from elastic_dit.errors import ClusterError

__all__ = ["Desk", "Means"]


class Means(NamedTuple):
    """What a desk works with.

    Attributes
    ----------
    host : EngineHost
    channel : Channel
    inbox : Inbox
    outbox : Outbox
    snapshots : SnapshotDesk
    """

    host: EngineHost
    channel: Channel
    inbox: Inbox
    outbox: Outbox
    snapshots: SnapshotDesk


class Desk:
    """Base of those that begin work when told to, and answer when it has ended.

    Parameters
    ----------
    means : Means

    Attributes
    ----------
    changed : asyncio.Event
        Set whenever something that was begun has ended.
    closed_for : str or None
        Why nothing further begins, None while it does.
    report_interval_s : float
        Least time between two messages of one request's steps, seconds.
    """

    def __init__(self, means: Means) -> None:
        self._host, self._channel, self._inbox, self._outbox, self._snapshots = means
        self.changed = asyncio.Event()
        self.closed_for: str | None = None
        self.report_interval_s = 0.0

    def refuse_if_closed(self) -> None:
        """Begin nothing any more.

        Raises
        ------
        ClusterError
            Where `closed_for` says why.
        """
        if self.closed_for is not None:
            raise ClusterError(f"engine {self._host.gpu} starts nothing more: {self.closed_for}")
