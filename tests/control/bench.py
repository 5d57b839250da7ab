"""A controller with hand-driven engines: every command is checked for sanity and remembered."""

from __future__ import annotations

from collections import Counter
from typing import Any

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, PlacementPlan

MODEL = "m"
ALL = tuple(Stage)


def make_request(request_id: str, **fields: Any) -> GenerationRequest:
    options: dict[str, Any] = {
        "model": MODEL,
        "prompt": "a red circle",
        "width": 64,
        "height": 64,
        "num_frames": 9,
        "fps": 8,
        "num_inference_steps": 4,
        "guidance_scale": 4.0,
        "seed": 0,
    }
    return GenerationRequest.parse(**{**options, "request_id": request_id, **fields})


class Bench:
    """Speaks for the engines and the clients.

    `running` maps a request id to its newest start or resize; `do(...)` handles an event at the
    next tick of a clock of whole seconds and returns the commands.
    """

    def __init__(self, dispatch: Any = None, **config: Any) -> None:
        self.controller = Controller(ControlConfig(**config), dispatch)
        self.now = 0.0
        self.commands: list[events.Command] = []
        self.starts: dict[str, events.StartStage] = {}
        self.epochs: dict[str, int] = {}
        self.gpus: dict[str, tuple[int, ...]] = {}
        self.released: Counter[ArtifactRef] = Counter()
        self.made: list[ArtifactRef] = []

    # ------------------------------------------------------------------------------ plumbing
    def do(self, event: events.Event, after: float = 1.0) -> list[events.Command]:
        self.now += after
        commands = self.controller.handle(event, self.now)
        self.controller.check()
        assert self.controller.refused == 0, list(self.controller.decisions)[-1]
        for command in commands:
            self._note(command)
        self.commands += commands
        return commands

    def _note(self, command: events.Command) -> None:
        match command:
            case events.StartStage():
                self.starts[command.request.request_id] = command
                self.epochs[command.request.request_id] = command.epoch
                self.gpus[command.request.request_id] = command.gpus
            case events.Resize():
                self.epochs[command.request_id] = command.epoch
                self.gpus[command.request_id] = command.gpus
            case events.Release():
                self.released[command.artifact] += 1

    def fence(self, request_id: str) -> dict[str, Any]:
        return {
            "request_id": request_id,
            "attempt": self.starts[request_id].attempt,
            "epoch": self.epochs[request_id],
        }

    # ------------------------------------------------------------------------------- engines
    def join(
        self, *gpus: int, stages: tuple[Stage, ...] = ALL, node: str = "n0", name: str = ""
    ) -> list[events.Command]:
        out: list[events.Command] = []
        for gpu in gpus:
            out += self.do(
                events.EngineJoined(
                    gpu=gpu,
                    name=name or f"w{gpu}",
                    node=node,
                    kind="virtual",
                    memory_bytes=1 << 30,
                    resident=frozenset((MODEL, stage) for stage in stages),
                )
            )
        return out

    def lose(
        self, gpu: int, reason: str = "killed", *, expected: bool = False
    ) -> list[events.Command]:
        return self.do(events.EngineLost(gpu=gpu, reason=reason, expected=expected))

    def plan(self, epoch: int, residency: dict[int, Any], **fields: Any) -> list[events.Command]:
        wanted = {
            gpu: frozenset(StageKey(MODEL, stage) for stage in stages)
            for gpu, stages in residency.items()
        }
        return self.do(
            events.PlanPublished(plan=PlacementPlan(epoch=epoch, residency=wanted, **fields))
        )

    def loaded(self, gpu: int, stage: Stage) -> list[events.Command]:
        return self.do(events.StageLoaded(gpu=gpu, model=MODEL, stage=stage, seconds=1.0))

    def dropped(self, gpu: int, stage: Stage) -> list[events.Command]:
        return self.do(events.StageDropped(gpu=gpu, model=MODEL, stage=stage))

    def load_failed(self, gpu: int, stage: Stage, message: str = "bad weights") -> list[Any]:
        return self.do(events.StageLoadFailed(gpu=gpu, model=MODEL, stage=stage, message=message))

    # ------------------------------------------------------------------------------ requests
    def submit(self, request_id: str, **fields: Any) -> list[events.Command]:
        return self.do(events.RequestAccepted(request=make_request(request_id, **fields)))

    def cancel(self, request_id: str) -> list[events.Command]:
        return self.do(events.CancelRequested(request_id=request_id, reason="changed my mind"))

    def artifact(self, request_id: str, step: int = 0, gpu: int | None = None) -> ArtifactRef:
        start = self.starts[request_id]
        return ArtifactRef(
            request_id=request_id,
            attempt=start.attempt,
            stage=start.stage,
            gpu=self.gpus[request_id][0] if gpu is None else gpu,
            nbytes=1000,
            digest=f"{start.stage}-{self.epochs[request_id]}",
            step=step,
        )

    def done_event(self, request_id: str, seconds: float = 1.0) -> events.StageDone:
        return events.StageDone(
            **self.fence(request_id),
            stage=self.starts[request_id].stage,
            output=self.artifact(request_id),
            seconds=seconds,
        )

    def done(self, request_id: str, seconds: float = 1.0) -> list[events.Command]:
        event = self.done_event(request_id, seconds)
        self.made.append(event.output)
        return self.do(event)

    def step(self, request_id: str, step: int) -> list[events.Command]:
        return self.do(events.StepDone(**self.fence(request_id), step=step))

    def failed(
        self, request_id: str, error_type: str = "ValueError", retryable: bool = False
    ) -> list[events.Command]:
        failure = Failure(
            error_type=error_type,
            message="boom",
            stage=self.starts[request_id].stage,
            retryable=retryable,
        )
        return self.do(events.StageFailed(**self.fence(request_id), failure=failure))

    def aborted(self, request_id: str) -> list[events.Command]:
        return self.do(events.StageAborted(**self.fence(request_id)))

    def preempted(self, request_id: str, step: int) -> list[events.Command]:
        snapshot = self.artifact(request_id, step)
        self.made.append(snapshot)
        return self.do(events.StagePreempted(**self.fence(request_id), snapshot=snapshot))

    def freed(self, request_id: str, *gpus: int) -> list[events.Command]:
        return self.do(events.GpusFreed(**self.fence(request_id), gpus=gpus))

    def inputs_lost(self, request_id: str) -> list[events.Command]:
        return self.do(events.InputsLost(**self.fence(request_id), message="no such artifact"))


def kinds(commands: list[events.Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


def only(commands: list[Any], kind: type) -> Any:
    found = [command for command in commands if isinstance(command, kind)]
    assert len(found) == 1, commands
    return found[0]
