"""A control plane of one page for tests of engines: it speaks, and decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from elastic_dit.cluster.messages import (
    COMMAND_OP,
    EVENT_OP,
    HELLO_OP,
    WELCOME_OP,
    decode_event,
    encode,
)
from elastic_dit.events import Command, Event, LoadStage, StageLoaded
from elastic_dit.request import Stage

WAIT_S = 30.0


class WireControl(SchedulerPlugin):
    """Numbers engines in order of their names' first hello and notes what they say."""

    name = "wire-control"

    def __init__(self, deaf_for: int = 0) -> None:
        self.deaf_for = deaf_for

    async def attach(self, scheduler: Any) -> None:
        scheduler.add_plugin(self)
        await self.start(scheduler)

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.hellos: list[dict[str, Any]] = []
        self.events: list[tuple[int, Event]] = []
        self.gpus: dict[str, int] = {}
        self.addresses: dict[int, str] = {}
        self._changed = asyncio.Condition()
        scheduler.stream_handlers[HELLO_OP] = self._hello
        scheduler.stream_handlers[EVENT_OP] = self._event

    async def _hello(self, engine: dict[str, Any], worker: str) -> None:
        self.hellos.append(engine)
        if len(self.hellos) > self.deaf_for:
            gpu = self.gpus.setdefault(engine["name"], len(self.gpus))
            self.addresses[gpu] = worker
            welcome = {"op": WELCOME_OP, "gpu": gpu, "config": {}}
            self.scheduler.stream_comms[worker].send(welcome)
        await self._notify()

    async def _event(self, event: dict[str, Any], worker: str) -> None:
        gpu = next(gpu for gpu, address in self.addresses.items() if address == worker)
        self.events.append((gpu, decode_event(event)))
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def send(self, gpu: int, command: Command) -> None:
        addresses = {str(number): address for number, address in self.addresses.items()}
        message = {"op": COMMAND_OP, "command": encode(command), "addresses": addresses}
        self.scheduler.stream_comms[self.addresses[gpu]].send(message)

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)
        return condition()

    async def event(self, kind: type[Event], request_id: str | None = None) -> Any:
        """The first event of that kind, awaited."""

        def found() -> Any:
            return [
                event
                for _, event in self.events
                if isinstance(event, kind)
                and request_id in (None, getattr(event, "request_id", None))
            ]

        return (await self.until(found))[0]

    async def ping(self, gpu: int) -> None:
        """Until the engine has worked off all that was sent before."""
        loads = [e for _, e in self.events if isinstance(e, StageLoaded) and e.gpu == gpu]
        self.send(
            gpu, LoadStage(gpu=gpu, model="fake", stage=Stage.ENCODER, plan_epoch=len(loads) + 9)
        )
        await self.until(
            lambda: (
                len([e for _, e in self.events if isinstance(e, StageLoaded) and e.gpu == gpu])
                > len(loads)
            )
        )
