"""The Dask end of one engine: a worker plug-in that speaks streams and answers fetches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import uuid
from collections.abc import Callable
from typing import Any

from distributed import Worker, WorkerPlugin
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps

from elastic_dit.cluster.messages import (
    COMMAND_OP,
    EVENT_OP,
    FENCE_OP,
    GIVES_UP,
    HELLO_OP,
    WELCOME_OP,
    decode_command,
    encode,
)
from elastic_dit.cluster.plain_errors import hide_known_tracebacks
from elastic_dit.cluster.serialization import register_serializers
from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.cluster.worker.engine_runner import EngineRunner
from elastic_dit.cluster.worker.result_files import KEEP_OP, RESTORE_OP, ResultFiles
from elastic_dit.config import Config
from elastic_dit.engine.protocol import Engine
from elastic_dit.errors import ArtifactGone, ElasticDitError
from elastic_dit.events import Event
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.rib import software_version
from elastic_dit.state import ArtifactRef

__all__ = ["HELLO_INTERVAL_S", "EngineMaker", "EnginePlugin", "WorkerChannel"]

logger = logging.getLogger(__name__)

_SWITCH_S = 0.0005
"""How long the event loop may keep the interpreter from the engine's thread, seconds. That needs it
between any two kernels; with Python's own 5 ms it stood still for most of every message."""

HELLO_INTERVAL_S = 0.5
"""Wait for an answer before an engine introduces itself again, seconds: a heartbeat's length."""

EngineMaker = Callable[[Config, str], Engine]
"""Makes an engine from the settings and a torch device; must pickle by reference."""


class EnginePlugin(WorkerPlugin):  # type: ignore[misc]
    """One engine on one Dask worker.

    Give it through ``Nanny(plugins=)``: it then comes back with every restart of the worker's
    process, and a set-up that fails stops that worker alone.

    Parameters
    ----------
    config : Config
    device : str
        Torch device, such as ``cuda:0`` or ``cpu``.
    node : str
        Name of the machine, the same for all GPUs that can see each other.
    index : int
        Number of the GPU on its machine.
    make_engine : callable, optional
        `elastic_dit.cluster.worker.engines.make_engine` by default.
    """

    name = "elastic-dit-engine"
    idempotent = True

    runner: EngineRunner

    def __init__(
        self,
        config: Config,
        *,
        device: str,
        node: str,
        index: int,
        make_engine: EngineMaker | None = None,
    ) -> None:
        self._config = config
        self._device = device
        self._node = node
        self._index = index
        self._make_engine = make_engine

    def __repr__(self) -> str:
        return f"<EnginePlugin {self._node}[{self._index}] on {self._device}>"

    async def setup(self, worker: Worker) -> None:
        """Make the engine, then introduce it in the background.

        Raises
        ------
        Exception
            Whatever the engine's constructor raises; Dask then stops the worker.
        """
        hide_known_tracebacks()
        register_serializers()
        sys.setswitchinterval(_SWITCH_S)
        self._worker = worker
        self._instance = uuid.uuid4().hex
        self._welcomed = asyncio.Event()
        self.runner = EngineRunner(self._engine, WorkerChannel(worker), self._config)
        worker.stream_handlers[COMMAND_OP] = self._command
        worker.stream_handlers[WELCOME_OP] = self._welcome
        worker.handlers["elastic_dit_fetch"] = self.fetch
        worker.handlers["elastic_dit_count_tokens"] = self.count_tokens
        worker.handlers["elastic_dit_allowed_dops"] = self.allowed_dops
        worker.handlers["elastic_dit_inspect"] = self.inspect
        files = ResultFiles(worker)
        worker.handlers[KEEP_OP] = files.keep
        worker.handlers[RESTORE_OP] = files.restore
        worker.stream_handlers[FENCE_OP] = files.fences.passed
        await self.runner.open()
        self._greeting = asyncio.create_task(self._greet())

    async def teardown(self, worker: Worker) -> None:
        """Stop the engine; the worker answers no more fetches and is deaf to commands."""
        greeting = getattr(self, "_greeting", None)
        if greeting is not None:
            greeting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await greeting
        for operation in (COMMAND_OP, FENCE_OP, WELCOME_OP):
            # Not removed: what is on its way would end the stream with a traceback.
            worker.stream_handlers[operation] = _ignore
        for operation in ("fetch", "count_tokens", "allowed_dops", "inspect"):
            worker.handlers.pop(f"elastic_dit_{operation}", None)
        for operation in (KEEP_OP, RESTORE_OP):
            worker.handlers.pop(operation, None)
        await self.runner.close()

    # ---------------------------------------------------------------------------- answers
    async def fetch(self, artifact: dict[str, Any]) -> dict[str, Any]:
        """Bytes of an artifact of this engine: status ``OK`` or ``gone``."""
        ref = ArtifactRef(**{**artifact, "stage": Stage(artifact["stage"])})
        try:
            encoded = self.runner.outbox.get(ref).encoded
        except ArtifactGone:
            return {"status": "gone"}
        return {
            "status": "OK",
            "header": encoded.header,
            "frames": to_serialize(list(encoded.frames)),
        }

    async def count_tokens(self, model: str, text: str) -> int:
        """Tokens of a text by the model's own tokenizer.

        Raises
        ------
        UnknownModel
            Where this engine does not serve it; Dask carries the error to the caller.
        """
        return await self.runner.host.count_tokens(model, text)

    async def allowed_dops(self, request: dict[str, Any], limit: int) -> list[int]:
        """Degrees of parallelism up to `limit` at which a request runs right.

        Raises
        ------
        ElasticDitError
            Where the request is none of ours; Dask carries the error to the caller.
        """
        parsed = GenerationRequest.parse(**request)
        return list(await self.runner.host.allowed_dops(parsed, limit))

    async def inspect(self) -> dict[str, Any]:
        """What the engine is, holds, keeps and has queued, as plain data."""
        return {
            **self.runner.inspect(),
            "name": self._worker.name,
            "node": self._node,
            "index": self._index,
            "instance": self._instance,
        }

    # ----------------------------------------------------------------------------- stream
    def _command(self, command: dict[str, Any], addresses: dict[str, str], store: str = "") -> None:
        try:
            self.runner.handle(
                decode_command(command),
                {int(gpu): address for gpu, address in addresses.items()},
                store,
            )
        except Exception:
            # Raised from here it would end the worker's stream to its scheduler.
            logger.exception("Cannot carry out %s", command)

    def _welcome(self, gpu: int, config: dict[str, Any]) -> None:
        try:
            self.runner.welcome(gpu, config)
        except ElasticDitError:
            logger.exception("The control plane's settings are not understood; ours stay")
        self._welcomed.set()

    async def _greet(self) -> None:
        """Say hello as soon as somebody listens, until somebody answers."""
        while not self._welcomed.is_set():
            if await self._is_heard():
                self._worker.batched_send({"op": HELLO_OP, "engine": self._hello()})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HELLO_INTERVAL_S):
                    await self._welcomed.wait()

    async def _is_heard(self) -> bool:
        """Whether the scheduler has a control plane: Dask ends a stream on an unknown op."""
        try:
            answer = await self._worker.scheduler.run_function(function=dumps(_has_control))
        except OSError:
            return False  # not registered yet, or about to leave
        return answer.get("result") is True

    def _hello(self) -> dict[str, Any]:
        described = self.runner.host.describe()
        return {
            "name": str(self._worker.name),
            "node": self._node,
            "index": self._index,
            "instance": self._instance,
            "software": software_version(),
            **described,
        }

    def _engine(self) -> Engine:
        if self._make_engine is not None:
            return self._make_engine(self._config, self._device)
        from elastic_dit.cluster.worker.engines import make_engine

        return make_engine(self._config, self._device)


def _ignore(**_: Any) -> None:
    """What a worker does with messages for an engine that has left."""


class WorkerChannel:
    """A `Channel` over a Dask worker.

    Parameters
    ----------
    worker : distributed.Worker
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __repr__(self) -> str:
        return f"<WorkerChannel of {self._worker.name}>"

    def send(self, event: Event) -> None:
        """See `Channel.send`: over the ordered stream to the scheduler."""
        self._worker.batched_send({"op": EVENT_OP, "event": encode(event)})

    def publish(self, request_id: str, result: Any) -> None:
        """See `Channel.publish`: as a Dask result of this worker, named after the request."""
        self._worker.update_data({request_id: result})

    def give_up(self, reason: str) -> None:
        """See `Channel.give_up`: the worker closes, and its nanny starts another process."""
        logger.error("Leaving: the device is no longer usable (%s)", reason)
        told = f"{GIVES_UP}: {reason}"
        self._worker.loop.add_callback(self._worker.close, nanny=False, reason=told)

    async def fetch(self, address: str, ref: ArtifactRef) -> Encoded | None:
        """See `Channel.fetch`: from the other worker's handler, never through the scheduler."""
        artifact = {
            field: str(value) if isinstance(value, Stage) else value
            for field, value in ((name, getattr(ref, name)) for name in ref.__slots__)
        }
        reply = await self._worker.rpc(address).elastic_dit_fetch(artifact=artifact)
        if reply["status"] == "gone":
            return None
        return Encoded(reply["header"], reply["frames"])


def _has_control(dask_scheduler: Any = None) -> bool:
    """Runs on the scheduler."""
    return HELLO_OP in dask_scheduler.stream_handlers
