"""The event-loop side of one engine: commands in, events out, nothing of Dask."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.channel import Channel
from elastic_dit.cluster.job_queue import JobQueue
from elastic_dit.cluster.mailbox import Mailbox
from elastic_dit.cluster.outbox import Artifact, Outbox
from elastic_dit.cluster.stage_run import Failed, Finished, Made, Outcome, failed, run_stage
from elastic_dit.cluster.transfer import Inbox
from elastic_dit.config import Config
from elastic_dit.engine.protocol import Boundary, Engine, EngineInfo, Payload
from elastic_dit.errors import ClusterError, ModelLoadError, TransferError
from elastic_dit.events import (
    Abort,
    Command,
    DropStage,
    InputsLost,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    StageAborted,
    StageDone,
    StageDropped,
    StageFailed,
    StageLoaded,
    StageLoadFailed,
    StagePreempted,
    StartStage,
    StepDone,
)
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["CLOSE_TIMEOUT_S", "EngineRunner"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""Longest wait at closing for a computation to notice that it is to stop, seconds."""

Addresses = Mapping[GpuId, str]
_Key = tuple[str, int, int]


class EngineRunner:
    """Carries out the commands of the control plane on one engine.

    Parameters
    ----------
    make_engine : callable
        Makes the engine; called in the engine's own thread, like all of its methods but
        `count_tokens`, which must not wait for a stage to end and has a thread of its own.
    channel : Channel
    config : Config

    Attributes
    ----------
    gpu : int or None
        Number that the control plane gave this engine.
    outbox : Outbox
    inbox : Inbox

    Notes
    -----
    Not thread-safe: used from one event loop.
    """

    def __init__(self, make_engine: Callable[[], Engine], channel: Channel, config: Config) -> None:
        self.gpu: GpuId | None = None
        self.outbox = Outbox()
        self._make_engine = make_engine
        self._channel = channel
        self._jobs = JobQueue("elastic-dit-engine")
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="elastic-dit-transfer")
        self.inbox = Inbox(channel, self.outbox, config.transfer, self._aside)
        self._apply(config)
        self._boxes: dict[_Key, _Started] = {}
        self._plan_epoch = 0
        self._draining = False
        self._changed = asyncio.Event()
        self._cards: dict[str, ModelCard] = {}

    def __repr__(self) -> str:
        return f"<EngineRunner gpu {self.gpu}: {len(self._boxes)} stages started, {self.outbox}>"

    # ------------------------------------------------------------------------------- life
    async def open(self) -> None:
        """Make the engine and read the cards of its models.

        Raises
        ------
        Exception
            Whatever the engine's constructor or its model's configuration raises.
        """
        self._jobs.open()
        try:
            await self._jobs.put(partial(self._jobs.in_thread, self._open_engine))
        except BaseException:
            await self.close()
            raise

    def _open_engine(self) -> None:
        self._engine = self._make_engine()
        self._cards = {name: self._engine.card(name) for name in self._engine.models()}
        self._info = self._engine.info()

    async def close(self) -> None:
        """Stop what runs, forget everything, free the device; bounded by `CLOSE_TIMEOUT_S`."""
        for started in self._boxes.values():
            started.box.post(Boundary.ABORT)
            started.inputs.cancel()
        await self.inbox.close()
        engine = getattr(self, "_engine", None)
        ended = await self._jobs.close(CLOSE_TIMEOUT_S)
        if engine is not None and ended:
            engine.close()
        self._aside.shutdown(wait=False)
        self.outbox.clear()

    def welcome(self, gpu: GpuId, settings: Mapping[str, Any]) -> None:
        """Take the number and the settings that the control plane gives."""
        self.gpu = gpu
        self._plan_epoch = 0
        if settings:
            self._apply(Config.parse(settings))

    def _apply(self, config: Config) -> None:
        self.inbox.config = config.transfer
        self.inbox.capacity = config.control.prefetch_depth + 1

    # -------------------------------------------------------------------------- questions
    def describe(self) -> dict[str, Any]:
        """What the engine is and holds, as plain data."""
        info = self.info
        return {
            "kind": info.kind,
            "device": info.device,
            "memory_bytes": info.memory_bytes,
            "models": [card.model_dump(mode="json") for card in self._cards.values()],
            "resident": [[key.model, str(key.stage)] for key in info.resident],
        }

    @property
    def info(self) -> EngineInfo:
        """What the engine was and held after its last job."""
        return self._info

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or is kept for others."""
        return not self._boxes and not self._jobs and not self.outbox

    def inspect(self) -> dict[str, Any]:
        """All of the above and what is queued, kept and transferred, as plain data."""
        return {
            **self.describe(),
            "gpu": self.gpu,
            "allocated_bytes": self.info.allocated_bytes,
            "draining": self._draining,
            "outbox": [_plain(ref) for ref in self.outbox],
            "outbox_bytes": self.outbox.nbytes,
            "queue": [repr(started.box) for started in self._boxes.values()],
            "transfers": [_plain(record) for record in self.inbox.records],
        }

    async def count_tokens(self, model: str, text: str) -> int:
        """See `Engine.count_tokens`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._aside, self._engine.count_tokens, model, text)

    # --------------------------------------------------------------------------- commands
    def handle(self, command: Command, addresses: Addresses) -> None:
        """Carry out a command; what comes of it is sent as events.

        Parameters
        ----------
        command : Command
        addresses : mapping of int to str
            Where the engines named in the command listen.
        """
        match command:
            case StartStage():
                self._start(command, addresses)
            case Prefetch():
                for ref in command.inputs:
                    if ref.gpu != self.gpu:
                        self.inbox.prefetch(ref, addresses.get(ref.gpu))
            case Abort():
                self._abort(command)
            case Preempt():
                self._preempt(command)
            case Release():
                self.outbox.release(command.artifact)
                self._changed.set()
            case LoadStage():
                self._load_in_background(command)
            case DropStage():
                self._drop_in_background(command)
            case _:
                logger.warning("%r cannot carry out %r", self, command)

    async def in_order(self, function: Callable[[Engine], T]) -> T:
        """Run ``function(engine)`` in the engine's thread, after all that was told before."""
        return await self._jobs.put(lambda: self._with_engine(function))

    async def load(self, key: StageKey) -> float:
        """Make a stage resident and tell the control plane.

        Returns
        -------
        float
            Seconds it took.

        Raises
        ------
        ModelLoadError
        """
        return await self._jobs.put(lambda: self._load(key))

    async def drop(self, key: StageKey) -> None:
        """Free a stage and tell the control plane."""
        await self._jobs.put(lambda: self._drop(key))

    async def drain(self, timeout_s: float) -> bool:
        """Start nothing more and wait until nothing runs and nothing is kept for others.

        Returns
        -------
        bool
            Whether that came about within `timeout_s`.
        """
        self._draining = True
        try:
            async with asyncio.timeout(timeout_s):
                while not self.idle:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # ---------------------------------------------------------------------------- staging
    def _start(self, start: StartStage, addresses: Addresses) -> None:
        key = _key(start)
        if key in self._boxes:
            return
        loop = asyncio.get_running_loop()

        def report(step: int) -> None:
            event = StepDone(
                request_id=start.request.request_id,
                attempt=start.attempt,
                epoch=start.epoch,
                step=step,
            )
            loop.call_soon_threadsafe(self._channel.send, event)

        try:
            self._refuse(start)
            box = Mailbox(start, report)
            inputs = asyncio.ensure_future(self.inbox.gather(start.inputs, addresses, self.gpu))
            started = self._boxes[key] = _Started(box, inputs)
            self._jobs.put(lambda: self._run(key, started))
        except ClusterError as error:
            self._boxes.pop(key, None)
            failure = dataclasses.replace(failed(error, start.stage).failure, retryable=True)
            self._channel.send(StageFailed(**_fence(start), failure=failure))

    def _refuse(self, start: StartStage) -> None:
        if self._draining:
            raise ClusterError(f"engine {self.gpu} is about to leave the cluster")
        if start.gpus != (self.gpu,):
            raise ClusterError(f"engine {self.gpu} cannot run in the group {start.gpus}")

    def _abort(self, abort: Abort) -> None:
        self.inbox.discard(abort.request_id)
        started = self._boxes.get((abort.request_id, abort.attempt, abort.epoch))
        if started is None:
            return
        started.box.post(Boundary.ABORT)
        if not started.running:
            started.inputs.cancel()
            self._end(started)
            self._channel.send(StageAborted(**_fence(started.box.start)))

    def _preempt(self, preempt: Preempt) -> None:
        started = self._boxes.get((preempt.request_id, preempt.attempt, preempt.epoch))
        if started is not None:
            started.box.post(Boundary.PREEMPT)

    async def _run(self, key: _Key, started: _Started) -> None:
        start = started.box.start
        try:
            inputs = await started.inputs
        except asyncio.CancelledError:
            if started.box.aborted():
                return  # answered when it was aborted
            raise
        except TransferError as error:
            self._end(started)
            self._channel.send(InputsLost(**_fence(start), message=str(error)))
            return
        if self._boxes.get(key) is not started:
            return
        started.running = True
        outcome = await self._with_engine(partial(run_stage, box=started.box, inputs=inputs))
        self._end(started)
        self._answer(started.box, outcome)

    def _answer(self, box: Mailbox, outcome: Outcome) -> None:
        start = box.start
        fence = _fence(start)
        if isinstance(outcome, Failed):
            self._channel.send(StageFailed(**fence, failure=outcome.failure))
            if outcome.device_broken:
                self._channel.give_up(str(outcome.failure))
        elif box.aborted():
            self._channel.send(StageAborted(**fence))
        elif isinstance(outcome, Finished):
            if start.stage is Stage.DECODER:
                # Before the event: whoever hears of the result must find it.
                self._channel.publish(start.request.request_id, outcome.result)
            ref = self._keep(start, outcome.made, step=0)
            self._channel.send(
                StageDone(**fence, stage=start.stage, output=ref, seconds=outcome.seconds)
            )
        elif outcome.snapshot is not None:
            ref = self._keep(start, outcome.snapshot, outcome.step)
            self._channel.send(StagePreempted(**fence, snapshot=ref))
        else:
            self._channel.send(StageAborted(**fence))

    def _keep(self, start: StartStage, made: Made, step: int) -> ArtifactRef:
        ref = ArtifactRef(
            request_id=start.request.request_id,
            attempt=start.attempt,
            stage=start.stage,
            gpu=start.gpus[0],
            nbytes=made.encoded.nbytes,
            digest=made.digest,
            step=step,
        )
        self.outbox.put(Artifact(ref=ref, payload=made.payload, encoded=made.encoded))
        return ref

    def _end(self, started: _Started) -> None:
        self._boxes.pop(_key(started.box.start), None)
        self._changed.set()

    # ---------------------------------------------------------------------------- loading
    def _load_in_background(self, command: LoadStage) -> None:
        key = StageKey(command.model, command.stage)
        if self._is_old(command.plan_epoch):
            return
        try:
            self._jobs.put(lambda: self._load(key)).add_done_callback(_mark_retrieved)
        except ClusterError as error:
            self._send_load_failed(key, str(error))

    def _drop_in_background(self, command: DropStage) -> None:
        key = StageKey(command.model, command.stage)
        if self._is_old(command.plan_epoch):
            return
        self._jobs.put(lambda: self._drop(key)).add_done_callback(_mark_retrieved)

    def _is_old(self, plan_epoch: int) -> bool:
        if plan_epoch < self._plan_epoch:
            return True
        self._plan_epoch = plan_epoch
        return False

    async def _load(self, key: StageKey) -> float:
        try:
            seconds = await self._with_engine(lambda engine: engine.load(key))
        except Exception as error:
            message = error.cause if isinstance(error, ModelLoadError) else _described(error)
            self._send_load_failed(key, message)
            raise ModelLoadError(key.model, key.stage, message) from error
        if self.gpu is not None:
            self._channel.send(
                StageLoaded(gpu=self.gpu, model=key.model, stage=key.stage, seconds=seconds)
            )
        return seconds

    async def _drop(self, key: StageKey) -> None:
        await self._with_engine(lambda engine: engine.drop(key))
        if self.gpu is not None:
            self._channel.send(StageDropped(gpu=self.gpu, model=key.model, stage=key.stage))

    def _send_load_failed(self, key: StageKey, message: str) -> None:
        if self.gpu is not None:
            self._channel.send(
                StageLoadFailed(gpu=self.gpu, model=key.model, stage=key.stage, message=message)
            )

    async def _with_engine(self, function: Callable[[Engine], T]) -> T:
        def call() -> T:
            try:
                return function(self._engine)
            finally:
                self._info = self._engine.info()

        return await self._jobs.in_thread(call)


@dataclasses.dataclass(slots=True)
class _Started:
    """A stage between its command and its answer."""

    box: Mailbox
    inputs: asyncio.Future[Payload | None]
    running: bool = False


def _key(start: StartStage) -> _Key:
    return start.request.request_id, start.attempt, start.epoch


def _fence(start: StartStage) -> dict[str, Any]:
    return {
        "request_id": start.request.request_id,
        "attempt": start.attempt,
        "epoch": start.epoch,
    }


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _plain(record: Any) -> dict[str, Any]:
    """A dataclass as msgpack-able data."""
    return {
        name: str(value) if isinstance(value, Stage) else value
        for name, value in dataclasses.asdict(record).items()
    }


def _mark_retrieved(done: asyncio.Future[Any]) -> None:
    """Its failure went out as an event; asyncio would log it once more."""
    if not done.cancelled():
        done.exception()
