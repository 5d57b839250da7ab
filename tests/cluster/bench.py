"""An `EngineRunner` over fakes, for tests: no Dask, no torch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from elastic_dit.cluster.worker.channel import FakeChannel
from elastic_dit.cluster.worker.engine_runner import EngineRunner
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine
from elastic_dit.engine.protocol import Engine
from elastic_dit.events import Event, StageDone, StartStage
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef

T = TypeVar("T")
E = TypeVar("E", bound=Event)

WAIT_S = 20.0
FAKE = Config.parse(
    {
        "engine": {"backend": "fake"},
        "control": {"progress_interval_s": 1e-6, "checkpoint_every": 0},
        "transfer": {"backoff_s": 0.001, "timeout_s": 5.0},
    }
)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """In a fresh event loop, bounded."""
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S))


def request(request_id: str = "r", **options: Any) -> GenerationRequest:
    return FAKE_CARD.complete(
        {"prompt": "a red circle", "request_id": request_id, "seed": 1, **options}
    )


def start(
    stage: Stage = Stage.ENCODER,
    request_id: str = "r",
    *,
    inputs: tuple[ArtifactRef, ...] = (),
    attempt: int = 1,
    epoch: int = 1,
    gpu: int = 0,
    **options: Any,
) -> StartStage:
    return StartStage(
        request=request(request_id, **options),
        attempt=attempt,
        epoch=epoch,
        stage=stage,
        gpus=(gpu,),
        inputs=inputs,
        reason="",
    )


class Channel(FakeChannel):
    """A fake channel one can wait at."""

    def __init__(self, source: Any = None) -> None:
        super().__init__(source)
        self._heard = asyncio.Event()

    def send(self, event: Event) -> None:
        super().send(event)
        self._heard.set()

    def of(self, kind: type[E], request_id: str | None = None) -> list[E]:
        return [
            event
            for event in self.events
            if isinstance(event, kind) and request_id in (None, getattr(event, "request_id", None))
        ]

    def done(self, stage: Stage) -> bool:
        return any(event.stage is stage for event in self.of(StageDone))

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._heard.clear()
                await self._heard.wait()
        return condition()

    async def event(self, kind: type[E], request_id: str | None = None) -> E:
        """The latest event of that kind, awaited."""
        found: list[E] = await self.until(lambda: self.of(kind, request_id))
        return found[-1]


@contextlib.asynccontextmanager
async def runner(
    engine: Engine | None = None,
    *,
    channel: Channel | None = None,
    gpu: int = 0,
    config: Config = FAKE,
    loaded: bool = True,
) -> AsyncIterator[tuple[EngineRunner, Channel]]:
    channel = channel or Channel()
    made = engine or FakeEngine()
    runner = EngineRunner(lambda: made, channel, config)
    await runner.open()
    runner.welcome(gpu, {})
    try:
        if loaded:
            for stage in Stage:
                await runner.loader.load(StageKey("fake", stage))
            channel.events.clear()
        yield runner, channel
    finally:
        await runner.close()


def source_of(runners: Mapping[str, EngineRunner]) -> Any:
    """Answers fetches from the outboxes of other runners, by address."""

    def source(address: str, ref: ArtifactRef) -> Any:
        outbox = runners[address].outbox
        return outbox.get(ref).encoded if ref in set(outbox) else None

    return source
