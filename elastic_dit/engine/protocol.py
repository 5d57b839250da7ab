"""The seam between the shells and what runs on a GPU: the `Engine` protocol.

Everything here is synchronous and is called from one thread, the engine's own, except what says
otherwise. `TorchEngine`
(`elastic_dit.engine.torch_engine`) is the real one; `FakeEngine` (`elastic_dit.engine.fake`) is
its twin for tests and needs neither torch nor a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from elastic_dit.catalog import ModelCard
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import GpuId

if TYPE_CHECKING:
    from elastic_dit.engine.group_context import GroupContext, GroupSeat, Outcome

__all__ = [
    "SNAPSHOT",
    "Boundary",
    "Checkpoint",
    "Engine",
    "EngineInfo",
    "ModelSource",
    "Payload",
    "StageContext",
    "StageOutput",
    "StageStopped",
]

Payload = Mapping[str, Any]
"""What crosses a stage border: a tree of plain data and tensors (see `engine.payload`)."""

SNAPSHOT = "snapshot"
"""The one key of a payload that holds a stage's own state instead of its inputs."""


class Boundary(Enum):
    """What a running stage shall do at a step boundary."""

    CONTINUE = "continue"
    PREEMPT = "preempt"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Order to hand a snapshot over at a step boundary and to go on.

    Attributes
    ----------
    take : callable
        ``(payload, step)``: takes the snapshot, as a payload in host memory that later steps do
        not change, and the steps done. Quick; called in the engine's thread.
    """

    take: Callable[[Payload, int], None]


class StageStopped(Exception):
    """Raised inside a stage to leave it early.

    Attributes
    ----------
    action : Boundary
        ``PREEMPT`` or ``ABORT``.
    snapshot : Payload or None
        State after the last whole step, with ``PREEMPT`` only.
    step : int
        Denoising steps done.
    """

    def __init__(self, action: Boundary, snapshot: Payload | None = None, step: int = 0) -> None:
        super().__init__(action, snapshot, step)
        self.action = action
        self.snapshot = snapshot
        self.step = step


class StageContext(Protocol):
    """How a running stage talks to its shell. Methods are quick and thread-safe."""

    def boundary(self, step: int, total_steps: int) -> Boundary | Checkpoint:
        """Report `step` steps done and learn what to do next."""
        ...

    def aborted(self) -> bool:
        """Whether to give up in the middle of a step or a decode."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where an engine finds a model.

    Attributes
    ----------
    name : str
        Name under which it is served.
    path : str
        Local diffusers folder.
    dtype : str
        Torch dtype of the weights, such as ``bfloat16``; norms the model keeps in float32 stay so.
    options : mapping
        Overrides of the `ModelCard` (limits, defaults) and of family settings.
    """

    name: str
    path: str
    dtype: str = "float32"
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine is and holds.

    Attributes
    ----------
    device : str
        ``cuda:0`` or ``cpu``.
    kind : str
        GPU kind, such as ``NVIDIA H200`` or ``virtual``.
    memory_bytes : int
        Memory of the device, bytes.
    allocated_bytes : int
        Of which allocated by this engine.
    resident : tuple of StageKey
    """

    device: str
    kind: str
    memory_bytes: int
    allocated_bytes: int
    resident: tuple[StageKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutput:
    """What a stage made.

    Attributes
    ----------
    payload : Payload
        For the next stage; after the decoder ``{"frames": uint8 array [T, H, W, 3]}``.
    seconds : float
        Time the stage took on the device, seconds.
    """

    payload: Payload
    seconds: float


class Engine(Protocol):
    """Stages of models on one GPU."""

    def card(self, model: str) -> ModelCard:
        """Limits and defaults of a configured model, from its configuration files alone."""
        ...

    def models(self) -> tuple[str, ...]:
        """Names of the models this engine can load."""
        ...

    def count_tokens(self, model: str, text: str) -> int:
        """Length of `text` in tokens of the model's own tokenizer, end mark included.

        The one method that may be called from another thread while a stage runs: a request is
        admitted without waiting for one.
        """
        ...

    def load(self, key: StageKey) -> float:
        """Make a stage resident; seconds it took. Loading what is resident is free.

        Raises
        ------
        ModelLoadError
            With the cause, and nothing left behind.
        """
        ...

    def drop(self, key: StageKey) -> None:
        """Free a stage."""
        ...

    def run(
        self,
        stage: Stage,
        request: GenerationRequest,
        inputs: Payload | None,
        context: StageContext,
    ) -> StageOutput:
        """Run one stage of one request to its end.

        Parameters
        ----------
        stage : Stage
            Must be resident for ``request.model``.
        request : GenerationRequest
        inputs : Payload or None
            The previous stage's payload (None for the encoder), or a snapshot of this one.
        context : StageContext
            Asked at every step boundary.

        Raises
        ------
        StageStopped
            As the context told.
        Exception
            Whatever the model raises: the request fails, the engine stays.
        """
        ...

    def tile_decodes(self, model: str, tiled: bool) -> None:
        """Let the decoder of a model work on one tile of the picture after the other, or not.

        It then takes less memory, more time, and pictures larger than a tile differ a little.
        Where a model's decoder cannot, nothing changes.
        """
        ...

    def allowed_dops(self, request: GenerationRequest, limit: int) -> tuple[int, ...]:
        """Degrees of parallelism up to `limit` at which `request` runs right, rising from 1.

        May be called from any thread, as `count_tokens` may.
        """
        ...

    def run_in_group(
        self,
        request: GenerationRequest,
        inputs: Payload | None,
        context: GroupContext,
        seat: GroupSeat,
    ) -> Outcome:
        """Be one member of the group that denoises `request`, to this member's end.

        Parameters
        ----------
        request : GenerationRequest
        inputs : Payload or None
            For the member that begins the run: the encoder's payload or a snapshot.
        context : GroupContext
            Asked at every step boundary by whoever is master then.
        seat : GroupSeat

        Raises
        ------
        GroupBroken
            Where no survivor came to a result; another attempt may.
        StageStopped
            Where ``context.aborted()``.
        Exception
            Whatever the model raises; the other members are told.
        """
        ...

    def meet(self, seat: GroupSeat) -> None:
        """Learn where groups of this GPU would meet, before there is a run.

        Engines whose groups take long to form begin to form them, in the background.
        """
        ...

    def member_lost(self, gpu: GpuId, cause: str) -> None:
        """Give up every exchange with a GPU that is known to be dead; from any thread."""
        ...

    def info(self) -> EngineInfo:
        """What the engine is and holds now."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...
