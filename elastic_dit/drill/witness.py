"""What the control plane saw happen to each request."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from elastic_dit.events import (
    Command,
    Complete,
    EngineLost,
    Event,
    Resize,
    RestartEngine,
    ResultLost,
    StartStage,
    StepDone,
)
from elastic_dit.request import Stage

__all__ = ["Witness"]


class Witness:
    """An onlooker of the control plane: counts results, and steps that are done again.

    Attributes
    ----------
    events : int
        Events so far.
    completed : Counter of str
        How often each request came to a result that stands.
    repeated : Counter of str
        Denoising steps that each request did once more.
    """

    def __init__(self) -> None:
        self.events = 0
        self.completed: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._moves: defaultdict[str, list[float]] = defaultdict(list)
        self._losses: list[float] = []

    def __repr__(self) -> str:
        return f"<Witness of {self.events} events>"

    def note(
        self,
        controller: Any,  # noqa: ARG002 - every onlooker gets it
        event: Event,
        commands: list[Command],
        now: float,  # noqa: ARG002
    ) -> None:
        """See `Reactor.onlookers`."""
        self.events += 1
        match event:
            case StepDone():
                self._steps[event.request_id] = max(self._steps[event.request_id], event.step)
            case EngineLost():
                self._losses.append(time.monotonic())
            case ResultLost():
                self.completed[event.request_id] -= 1
        for command in commands:
            self._note_command(command)

    def _note_command(self, command: Command) -> None:
        match command:
            case StartStage():
                request_id = command.request.request_id
                self._moves[request_id].append(time.monotonic())
                if command.stage is Stage.DIT:
                    begins_at = max((ref.step for ref in command.inputs), default=0)
                    self.repeated[request_id] += max(0, self._steps[request_id] - begins_at)
                    self._steps[request_id] = begins_at
            case Resize():
                self._moves[command.request_id].append(time.monotonic())
            case RestartEngine():
                self._losses.append(time.monotonic())
            case Complete():
                self.completed[command.request_id] += 1

    def moved_at(self, request_id: str, since: float) -> float | None:
        """When a request was first started, or given another group, after a time."""
        return next((at for at in tuple(self._moves[request_id]) if at > since), None)

    def noticed_at(self, since: float) -> float | None:
        """When the control plane first gave an engine up, after a time."""
        return next((at for at in tuple(self._losses) if at > since), None)

    def first_move(self, request_ids: Iterable[str], since: float) -> float | None:
        """The first of several."""
        found = (self.moved_at(request_id, since) for request_id in request_ids)
        return min((at for at in found if at is not None), default=None)

    def begin_again(self, told: Iterable[str]) -> None:
        """The control plane died: of what it had done, only what clients were told stands."""
        self.completed = Counter(dict.fromkeys(told, 1))
