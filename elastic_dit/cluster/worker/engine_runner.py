"""The event-loop side of one engine: commands in, events out, nothing of Dask."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.desk import Means
from elastic_dit.cluster.worker.engine_host import EngineHost
from elastic_dit.cluster.worker.group_desk import GroupDesk, Place
from elastic_dit.cluster.worker.injector import Injector
from elastic_dit.cluster.worker.outbox import Outbox
from elastic_dit.cluster.worker.snapshot_desk import SnapshotDesk
from elastic_dit.cluster.worker.stage_desk import StageDesk
from elastic_dit.cluster.worker.stage_loader import StageLoader
from elastic_dit.cluster.worker.transfer import Inbox
from elastic_dit.config import Config
from elastic_dit.engine.group_context import GroupLimits
from elastic_dit.engine.protocol import Engine
from elastic_dit.events import (
    Abort,
    Command,
    DropStage,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    Replicate,
    Resize,
    StartStage,
)
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["EngineRunner"]

logger = logging.getLogger(__name__)

_LEAVES = "it is about to leave the cluster"
"""Why a drained engine begins nothing."""


class EngineRunner:
    """Carries out the commands of the control plane on one engine.

    Parameters
    ----------
    make_engine : callable
        Makes the engine, in the engine's own thread.
    channel : Channel
    config : Config

    Attributes
    ----------
    injector : Injector
    host : EngineHost
    outbox : Outbox
    inbox : Inbox
    snapshots : SnapshotDesk
    loader : StageLoader
    desk : StageDesk
    groups : GroupDesk

    Notes
    -----
    Not thread-safe: used from one event loop.
    """

    def __init__(self, make_engine: Callable[[], Engine], channel: Channel, config: Config) -> None:
        self.injector = Injector(config.faults)
        channel = self.injector.around_channel(channel)
        self.host = EngineHost(lambda: self.injector.around_engine(make_engine()))
        self.outbox = Outbox()
        self.inbox = Inbox(channel, self.outbox, config.transfer, self.host.aside)
        self.loader = StageLoader(self.host, channel)
        self.snapshots = SnapshotDesk(self.host, channel, self.inbox, self.outbox)
        means = Means(self.host, channel, self.inbox, self.outbox, self.snapshots)
        self.desk = StageDesk(means)
        self.groups = GroupDesk(means)
        self._apply(config)

    def __repr__(self) -> str:
        return f"<EngineRunner {self.host!r}: {self.desk!r}, {self.outbox!r}>"

    async def open(self) -> None:
        """Make the engine.

        Raises
        ------
        Exception
            Whatever the engine's constructor or a model's configuration raises.
        """
        try:
            await self.host.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop what runs, forget everything, free the device; bounded."""
        self.desk.close()
        self.groups.close()
        await self.snapshots.close()
        await self.inbox.close()
        await self.host.close()
        self.outbox.clear()

    def welcome(self, gpu: GpuId, settings: Mapping[str, Any]) -> None:
        """Take the number and the settings that the control plane gives.

        Raises
        ------
        ConfigError
            Where the settings are not those of this release; the number holds.
        """
        self.host.gpu = gpu
        self.loader.restart()
        if settings:
            self._apply(Config.parse(settings))

    def _apply(self, config: Config) -> None:
        self.inbox.config = config.transfer
        self.inbox.capacity = config.control.prefetch_depth + 1
        self.snapshots.every = config.control.checkpoint_every
        self.snapshots.interval_s = config.control.checkpoint_interval_s
        interval_s = config.control.progress_interval_s
        self.desk.report_interval_s = self.groups.report_interval_s = interval_s
        self.groups.max_dop = config.control.slots_per_node
        self.groups.limits = GroupLimits(
            collective_s=config.engine.group_timeout_s,
            join_s=2 * config.engine.group_timeout_s,
            step_floor_s=min(config.engine.group_timeout_s, GroupLimits().step_floor_s),
        )

    def handle(self, command: Command, addresses: Mapping[GpuId, str], store: str = "") -> None:
        """Carry out a command; what comes of it is sent as events.

        Parameters
        ----------
        command : Command
        addresses : mapping of int to str
            Where the engines named in the command listen.
        store : str
            ``host:port`` of the store on which groups meet; empty where none can form.
        """
        match command:
            case StartStage(stage=Stage.DIT) if store:
                self.groups.start(command, Place(store, addresses))
            case StartStage():
                self.desk.start(command, addresses)
            case Resize():
                self.groups.resize(command, Place(store, addresses))
                self.desk.refuse_resize(command)
            case Abort():
                self._abort(command)
            case Preempt():
                self.groups.preempt(command)
                self.desk.preempt(command)
            case Prefetch():
                self._prefetch(command, addresses)
            case Replicate():
                self.snapshots.copy(command, addresses)
            case Release():
                self.inbox.release(command.artifact)
                self.snapshots.release(command.artifact)
                self.outbox.release(command.artifact)
                self.desk.changed.set()
            case LoadStage() | DropStage():
                self._load_or_drop(command, Place(store, addresses))
            case _:
                logger.warning("%r cannot carry out %r", self, command)

    def _abort(self, command: Abort) -> None:
        self.inbox.discard(command.request_id)
        if not self.desk.abort(command):
            self.groups.abort(command)

    def _load_or_drop(self, command: LoadStage | DropStage, place: Place) -> None:
        self.loader.handle(command)
        if isinstance(command, LoadStage) and command.stage is Stage.DIT and place.store:
            self.groups.meet(place)

    def _prefetch(self, command: Prefetch, addresses: Mapping[GpuId, str]) -> None:
        for ref in command.inputs:
            if ref.gpu != self.host.gpu:
                self.inbox.prefetch(ref, addresses.get(ref.gpu))

    async def drain(self, timeout_s: float) -> bool:
        """Start nothing more and wait until nothing runs and nothing is kept for others.

        Returns
        -------
        bool
            Whether that came about within `timeout_s`. Where not, the engine stays in the cluster
            and starts what it is told again: the control plane counts on it.
        """
        self.groups.changed = self.desk.changed
        leaves = False
        try:
            with contextlib.suppress(TimeoutError):  # told by what is returned
                async with asyncio.timeout(timeout_s):
                    while not leaves:
                        self.desk.closed_for = self.groups.closed_for = _LEAVES
                        self.desk.changed.clear()
                        leaves = not (len(self.desk) or len(self.groups) or self._is_needed)
                        if not leaves:
                            await self.desk.changed.wait()
        finally:
            if not leaves:
                self.desk.closed_for = self.groups.closed_for = None
        return leaves

    @property
    def _is_needed(self) -> bool:
        """Whether it keeps what others wait for; copies are for the case that originals die."""
        return len(self.outbox) > self.snapshots.spare

    def inspect(self) -> dict[str, Any]:
        """What the engine is and holds, what is queued, kept and was transferred, as plain data."""
        return {
            **self.host.describe(),
            "gpu": self.host.gpu,
            "allocated_bytes": self.host.info.allocated_bytes,
            "draining": self.desk.closed_for is not None,
            "queue": [repr(box) for box in (*self.desk, *self.groups)],
            "outbox": [_plain(ref) for ref in self.outbox],
            "outbox_bytes": self.outbox.nbytes,
            "inbox": len(self.inbox),
            "transfers": [_plain(record) for record in self.inbox.records],
        }


def _plain(record: Any) -> dict[str, Any]:
    """A dataclass as msgpack-able data."""
    return {
        name: str(value) if isinstance(value, Stage) else value
        for name, value in dataclasses.asdict(record).items()
    }
