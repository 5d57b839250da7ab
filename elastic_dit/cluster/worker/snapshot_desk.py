"""Snapshots of runs that go on: kept here by a master, copied here for another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.checkpoint_pace import CheckpointPace
from elastic_dit.cluster.worker.engine_host import EngineHost
from elastic_dit.cluster.worker.outbox import Outbox
from elastic_dit.cluster.worker.stage_run import made
from elastic_dit.cluster.worker.transfer import Inbox
from elastic_dit.engine.protocol import Payload
from elastic_dit.errors import TransferError
from elastic_dit.events import ArtifactCopied, Replicate, SnapshotKept
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["SnapshotDesk"]

logger = logging.getLogger(__name__)


class SnapshotDesk:
    """Encodes and pulls snapshots beside the engine's work.

    Parameters
    ----------
    host : EngineHost
    channel : Channel
    inbox : Inbox
    outbox : Outbox

    Attributes
    ----------
    every : int
        Denoising steps between two snapshots; 0 for none.
    interval_s : float
        Least time between two of one run, seconds.

    Notes
    -----
    Not thread-safe: used from the event loop only.
    """

    def __init__(self, host: EngineHost, channel: Channel, inbox: Inbox, outbox: Outbox) -> None:
        self._host = host
        self._channel = channel
        self._inbox = inbox
        self._outbox = outbox
        self._keeping: set[asyncio.Task[None]] = set()
        self._copying: dict[ArtifactRef, asyncio.Task[None]] = {}
        self._copies: set[ArtifactRef] = set()
        self.every = 0
        self.interval_s = 0.0

    def __repr__(self) -> str:
        return f"<SnapshotDesk every {self.every} steps, {self.spare} copies>"

    @property
    def spare(self) -> int:
        """Artifacts in the outbox that are copies: nobody waits for them."""
        return len(self._copies)

    def pace(self, fence: Callable[[], dict[str, Any]], since: int | None = None) -> CheckpointPace:
        """The checkpoints of one run.

        Parameters
        ----------
        fence : callable
            Gives the fields of the run's messages.
        since : int or None
            See `CheckpointPace`.
        """
        loop = asyncio.get_running_loop()

        def take(payload: Payload, step: int) -> None:
            loop.call_soon_threadsafe(self._begin, fence, payload, step)

        return CheckpointPace(self.every, take, since, interval_s=self.interval_s)

    def copy(self, command: Replicate, addresses: Mapping[GpuId, str]) -> None:
        """Pull a copy, and say so."""
        artifact = command.artifact
        copy = replace(artifact, gpu=command.gpu)
        pull = asyncio.ensure_future(self._copy(artifact, copy, addresses.get(artifact.gpu)))
        self._copying[copy] = pull
        pull.add_done_callback(lambda _: self._copying.pop(copy, None))

    def release(self, artifact: ArtifactRef) -> None:
        """An artifact is needed no more; a copy of it not either."""
        self._copies.discard(artifact)
        pull = self._copying.pop(artifact, None)
        if pull is not None:
            pull.cancel()

    async def close(self) -> None:
        """Stop everything, unanswered."""
        under_way = [*self._keeping, *self._copying.values()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._copies.clear()

    def _begin(self, fence: Callable[[], dict[str, Any]], payload: Payload, step: int) -> None:
        task = asyncio.ensure_future(self._keep(fence, payload, step))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, fence: Callable[[], dict[str, Any]], payload: Payload, step: int) -> None:
        assert self._host.gpu is not None, self
        loop = asyncio.get_running_loop()
        try:
            ready = await loop.run_in_executor(self._host.aside, made, payload)
        except Exception:
            # The run goes on without it; only what could have been spared is lost.
            logger.exception("Cannot keep a snapshot of %s", fence())
            return
        names = fence()
        snapshot = self._outbox.keep(
            ready,
            request_id=names["request_id"],
            attempt=names["attempt"],
            stage=Stage.DIT,
            gpu=self._host.gpu,
            step=step,
        )
        self._channel.send(SnapshotKept(**names, snapshot=snapshot))

    async def _copy(self, artifact: ArtifactRef, copy: ArtifactRef, address: str | None) -> None:
        try:
            pulled = await self._inbox.pull(artifact, address)
        except TransferError as error:
            self._channel.send(ArtifactCopied(copy=copy, failure=str(error)))
            return
        self._copies.add(copy)
        self._outbox.put(replace(pulled, ref=copy))
        self._channel.send(ArtifactCopied(copy=copy))
