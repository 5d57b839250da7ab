"""The receiver pulls: inputs of stages, fetched from the engines that hold them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import NamedTuple

from elastic_dit.cluster.worker.channel import Channel
from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.cluster.worker.outbox import Artifact, Outbox
from elastic_dit.config import TransferConfig
from elastic_dit.engine.protocol import Payload
from elastic_dit.errors import ArtifactGone, DigestMismatch, TransferError
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["RECORDS_KEPT", "Inbox", "Inputs", "TransferRecord"]

RECORDS_KEPT = 1000
"""Pulls that `Inbox.records` remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    """One pull, for telemetry.

    Attributes
    ----------
    request_id : str
    stage : Stage
        The stage that had produced the artifact.
    source : int
        The engine it came from.
    nbytes : int
        Size of its tensors, bytes.
    seconds : float
        From asking to decoded, retries included.
    tries : int
        Pulls it took; 0 where it lay on this engine already.
    """

    request_id: str
    stage: Stage
    source: GpuId
    nbytes: int
    seconds: float
    tries: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a stage starts with.

    Attributes
    ----------
    payload : mapping or None
        All of it in one; None for a stage without inputs.
    pulls : tuple of (Stage, float)
        See `elastic_dit.events.StageDone.pulls`.
    """

    payload: Payload | None = None
    pulls: tuple[tuple[Stage, float], ...] = ()


class _Pulled(NamedTuple):
    artifact: Artifact
    record: TransferRecord


class Inbox:
    """Artifacts on their way here or just arrived.

    Parameters
    ----------
    channel : Channel
    outbox : Outbox
        What this engine holds itself: such inputs are taken by reference.
    config : TransferConfig
    executor : Executor
        Where digests are computed and payloads decoded; not the engine's own thread.
    capacity : int
        Artifacts that may lie here unclaimed. Beyond it the oldest is forgotten: its stage
        would merely pull it again, since the producer keeps it until the control plane says.

    Notes
    -----
    Not thread-safe: used from the event loop only. However many ask for one artifact, it is
    pulled once.
    """

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        config: TransferConfig,
        executor: Executor,
        *,
        capacity: int = 2,
    ) -> None:
        self._channel = channel
        self._outbox = outbox
        self._executor = executor
        self._pulls: OrderedDict[ArtifactRef, asyncio.Task[_Pulled]] = OrderedDict()
        self._claims: dict[ArtifactRef, int] = {}
        self.config = config
        self.capacity = capacity
        self.records: deque[TransferRecord] = deque(maxlen=RECORDS_KEPT)

    def __repr__(self) -> str:
        return f"<Inbox {len(self._pulls)} artifacts, {len(self.records)} pulls so far>"

    def __len__(self) -> int:
        return len(self._pulls)

    def prefetch(self, ref: ArtifactRef, address: str | None) -> None:
        """Begin to pull an artifact that will be wanted soon; a failure is met when it is."""
        self._pull(ref, address)
        self._forget_unclaimed()

    async def get(self, ref: ArtifactRef, address: str | None) -> Payload:
        """The payload of an artifact, pulled now unless it has been or is being.

        Parameters
        ----------
        ref : ArtifactRef
        address : str or None
            Where its holder listens, None where nobody knows.

        Raises
        ------
        ArtifactGone
            The holder no longer has it.
        DigestMismatch
            It arrived damaged however often it was pulled.
        TransferError
            The holder could not be reached.
        """
        return (await self.pull(ref, address)).payload

    async def pull(self, ref: ArtifactRef, address: str | None) -> Artifact:
        """As `get`, with its encoded form."""
        return (await self._claim(ref, address)).artifact

    async def _claim(self, ref: ArtifactRef, address: str | None) -> _Pulled:
        self._claims[ref] = self._claims.get(ref, 0) + 1
        pull = self._pull(ref, address)
        try:
            # Shielded: others may wait for the same pull.
            return await asyncio.shield(pull)
        finally:
            self._claims[ref] -= 1
            if not self._claims[ref]:
                del self._claims[ref]
                self._discard(ref)

    def discard(self, request_id: str) -> None:
        """Forget what was prefetched for a request and stop what is on its way."""
        for ref in [ref for ref in self._pulls if ref.request_id == request_id]:
            if ref not in self._claims:
                self._discard(ref)

    def release(self, copy: ArtifactRef) -> None:
        """Forget a copy that was pulled ahead and is not wanted any more, unless it is in use."""
        for ref in [ref for ref in self._pulls if replace(ref, gpu=copy.gpu) == copy]:
            if ref not in self._claims:
                self._discard(ref)

    async def close(self) -> None:
        """Stop every pull."""
        pulls = list(self._pulls.values())
        for ref in list(self._pulls):
            self._discard(ref)
        await asyncio.gather(*pulls, return_exceptions=True)

    def _pull(self, ref: ArtifactRef, address: str | None) -> asyncio.Task[_Pulled]:
        pull = self._pulls.get(ref)
        if pull is None or (pull.done() and (pull.cancelled() or pull.exception())):
            pull = asyncio.ensure_future(self._pull_or_retry(ref, address))
            pull.add_done_callback(_mark_retrieved)
            self._pulls[ref] = pull
        return pull

    def _discard(self, ref: ArtifactRef) -> None:
        pull = self._pulls.pop(ref, None)
        if pull is not None:
            pull.cancel()

    def _forget_unclaimed(self) -> None:
        unclaimed = [ref for ref in self._pulls if ref not in self._claims]
        for ref in unclaimed[: max(0, len(unclaimed) - self.capacity)]:
            self._discard(ref)

    async def _pull_or_retry(self, ref: ArtifactRef, address: str | None) -> _Pulled:
        began = time.perf_counter()
        if address is None:
            raise ArtifactGone(f"request {ref.request_id}: engine {ref.gpu} has left the cluster")
        tries = 0
        while True:
            tries += 1
            try:
                artifact = await self._pull_once(ref, address)
                break
            except ArtifactGone:
                raise
            except TransferError:
                if tries >= self.config.attempts:
                    raise
                await asyncio.sleep(self.config.backoff_s * 2 ** (tries - 1))
        return _Pulled(artifact, self._record(ref, time.perf_counter() - began, tries))

    async def _pull_once(self, ref: ArtifactRef, address: str) -> Artifact:
        where = f"request {ref.request_id}: output of its {ref.stage} stage from {address}"
        try:
            async with asyncio.timeout(self.config.timeout_s):
                encoded = await self._channel.fetch(address, ref)
        except TimeoutError:
            raise TransferError(f"{where}: nothing within {self.config.timeout_s:g} s") from None
        except OSError as error:
            raise TransferError(f"{where}: {error}") from error
        if encoded is None:
            raise ArtifactGone(f"{where}: no longer held there")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, _verified, ref, encoded, where)

    def _record(self, ref: ArtifactRef, seconds: float, tries: int) -> TransferRecord:
        record = TransferRecord(
            request_id=ref.request_id,
            stage=ref.stage,
            source=ref.gpu,
            nbytes=ref.nbytes,
            seconds=seconds,
            tries=tries,
        )
        self.records.append(record)
        return record

    async def gather(
        self, refs: tuple[ArtifactRef, ...], addresses: Mapping[GpuId, str], here: GpuId | None
    ) -> Inputs:
        """All inputs of a stage.

        Parameters
        ----------
        refs : tuple of ArtifactRef
        addresses : mapping of int to str
            Where engines listen.
        here : int or None
            Number of this engine: what it holds itself is not copied.

        Raises
        ------
        TransferError
            As `get`.
        """
        parts = await asyncio.gather(*(self._input(ref, addresses, here) for ref in refs))
        payload = {key: value for part in parts for key, value in part.artifact.payload.items()}
        records = [part.record for part in parts]
        return Inputs(
            payload if parts else None,
            tuple((record.stage, record.seconds) for record in records if record.tries),
        )

    async def _input(
        self, ref: ArtifactRef, addresses: Mapping[GpuId, str], here: GpuId | None
    ) -> _Pulled:
        if ref.gpu == here:
            return _Pulled(self._outbox.get(ref), self._record(ref, 0.0, 0))
        return await self._claim(ref, addresses.get(ref.gpu))


def _verified(ref: ArtifactRef, encoded: Encoded, where: str) -> Artifact:
    digest = encoded.digest()
    if digest != ref.digest:
        raise DigestMismatch(f"{where}: digest {digest}, expected {ref.digest}")
    return Artifact(ref=ref, payload=encoded.payload(), encoded=encoded)


def _mark_retrieved(pull: asyncio.Task[_Pulled]) -> None:
    """A failed prefetch that nobody claims is no error; asyncio would log it as one."""
    if not pull.cancelled():
        pull.exception()
