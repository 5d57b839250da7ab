"""A twin of the real engine without torch or a model: for tests of everything around engines.

Its numbers depend on the request alone, step by step, so whatever a schedule does to a request
(split, preempt, resume, retry), the frames must equal `fake_frames` of that request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.engine.fake_group import FakeGroups, FakeMember
from elastic_dit.engine.fake_pixels import begin_or_resume, decode, embed, fake_frames, step_on
from elastic_dit.engine.group_context import End, GroupContext, GroupSeat, Outcome
from elastic_dit.engine.protocol import (
    SNAPSHOT,
    Boundary,
    Checkpoint,
    EngineInfo,
    Payload,
    StageContext,
    StageOutput,
    StageStopped,
)
from elastic_dit.errors import ModelLoadError, UnknownModel
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import GpuId

__all__ = [
    "FAKE_CARD",
    "Clock",
    "FakeEngine",
    "FakeFailure",
    "FakeSeconds",
    "InstantClock",
    "RealClock",
    "fake_frames",
]

ABORT_POLL_S = 0.005
"""How often a pretended computation looks whether it shall give up, seconds."""
MEMORY_BYTES = 2**30
"""Memory that a fake device claims to have."""
STAGE_BYTES = 2**20
"""Memory that a resident fake stage claims to use."""

FAKE_CARD = ModelCard(
    name="fake",
    family="fake",
    size_multiple=16,
    max_side=96,
    frame_multiple=4,
    max_frames=17,
    max_steps=100,
    max_prompt_tokens=16,
    defaults=RequestDefaults(
        width=64, height=64, num_frames=9, fps=8, num_inference_steps=12, guidance_scale=4.0
    ),
)
"""The model a `FakeEngine` serves where none is given: the limits of the embedded one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSeconds:
    """How long a fake stage pretends to compute, seconds."""

    load: float = 0.0
    encoder: float = 0.0
    step: float = 0.0
    decoder: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeFailure:
    """An exception to raise in one stage of one request.

    Attributes
    ----------
    stage : Stage
    request_id : str
    error : Exception
        What to raise.
    step : int
        In the DiT stage: after this many steps.
    times : int or None
        How many runs of the stage fail, None for all.
    """

    stage: Stage
    request_id: str
    error: Exception = field(default_factory=lambda: RuntimeError("injected failure"))
    step: int = 0
    times: int | None = None


class Clock(Protocol):
    """Time as a fake engine sees it."""

    def now(self) -> float:
        """Seconds since some fixed instant."""
        ...

    def wait(self, seconds: float, stop: Callable[[], bool]) -> None:
        """Return after `seconds`, or soon after `stop()` becomes true."""
        ...


class RealClock:
    """Waits in real time, on an event that nobody sets."""

    def __init__(self) -> None:
        self._never = threading.Event()

    def now(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def wait(self, seconds: float, stop: Callable[[], bool]) -> None:
        """Wait in slices of `ABORT_POLL_S`."""
        deadline = self.now() + seconds
        while (left := deadline - self.now()) > 0 and not stop():
            self._never.wait(min(left, ABORT_POLL_S))


class InstantClock:
    """Virtual time: a wait returns at once and moves the clock on.

    >>> clock = InstantClock()
    >>> clock.wait(3600.0, lambda: False)
    >>> clock.now()
    3600.0
    """

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds waited so far."""
        return self._now

    def wait(self, seconds: float, stop: Callable[[], bool]) -> None:
        """Advance, unless told to stop."""
        if not stop():
            self._now += seconds


class FakeEngine:
    """An `Engine` that pretends.

    Parameters
    ----------
    cards : sequence of ModelCard, optional
        Models to serve; `FAKE_CARD` alone by default.
    seconds : FakeSeconds, optional
        Pretended computing times; none by default.
    failures : sequence of FakeFailure, optional
        Exceptions to raise.
    load_failures : mapping of StageKey to str, optional
        Stages that cannot be loaded, with the cause to report.
    clock : Clock, optional
        Real time by default.
    device : str
        What `info` calls the device.
    groups : FakeGroups, optional
        Where it meets others of this process; without, it runs every request alone.

    Attributes
    ----------
    tiled : int
        How often it was asked to decode in tiles.
    met : GroupSeat or None
        Where it was told that groups meet.

    Notes
    -----
    Like the real engine it is to be called from one thread.

    Examples
    --------
    >>> from elastic_dit.engine.protocol import Boundary
    >>> class Context:
    ...     def boundary(self, step, total_steps):
    ...         return Boundary.CONTINUE
    ...     def aborted(self):
    ...         return False
    >>> engine = FakeEngine()
    >>> request = FAKE_CARD.complete({"prompt": "a circle", "request_id": "r", "seed": 1})
    >>> payload = None
    >>> for stage in Stage:
    ...     _ = engine.load(StageKey("fake", stage))
    ...     payload = engine.run(stage, request, payload, Context()).payload
    >>> payload["frames"].shape, bool((payload["frames"] == fake_frames(request)).all())
    ((9, 64, 64, 3), True)
    """

    def __init__(
        self,
        cards: Sequence[ModelCard] = (FAKE_CARD,),
        *,
        seconds: FakeSeconds | None = None,
        failures: Sequence[FakeFailure] = (),
        load_failures: Mapping[StageKey, str] | None = None,
        clock: Clock | None = None,
        device: str = "fake:0",
        groups: FakeGroups | None = None,
    ) -> None:
        self._cards = {card.name: card for card in cards}
        self._seconds = seconds or FakeSeconds()
        self._failures = list(failures)
        self._failed = [0] * len(self._failures)
        self._load_failures = dict(load_failures or {})
        self._clock = clock or RealClock()
        self._device = device
        self._groups = groups
        self._resident: dict[StageKey, None] = {}
        self.tiled = 0
        self.met: GroupSeat | None = None

    def __repr__(self) -> str:
        resident = ", ".join(f"{key.model}/{key.stage}" for key in self._resident)
        return f"<FakeEngine {self._device}: {resident or 'nothing resident'}>"

    def card(self, model: str) -> ModelCard:
        """Card as given.

        Raises
        ------
        UnknownModel
        """
        try:
            return self._cards[model]
        except KeyError:
            raise UnknownModel("model", model, f"one of {', '.join(self._cards)}") from None

    def models(self) -> tuple[str, ...]:
        """Names of the given cards."""
        return tuple(self._cards)

    def count_tokens(self, model: str, text: str) -> int:
        """Words, and one for the end mark."""
        self.card(model)
        return len(text.split()) + 1

    def load(self, key: StageKey) -> float:
        """Pretend to read weights.

        Raises
        ------
        ModelLoadError
            Where the constructor was told so.
        """
        self.card(key.model)
        if key in self._resident:
            return 0.0
        start = self._clock.now()
        self._clock.wait(self._seconds.load, lambda: False)
        if key in self._load_failures:
            raise ModelLoadError(key.model, key.stage, self._load_failures[key])
        self._resident[key] = None
        return self._clock.now() - start

    def drop(self, key: StageKey) -> None:
        """Forget a stage."""
        self._resident.pop(key, None)

    def run(
        self,
        stage: Stage,
        request: GenerationRequest,
        inputs: Payload | None,
        context: StageContext,
    ) -> StageOutput:
        """Pretend to run a stage; what comes out depends on the request alone."""
        if StageKey(request.model, stage) not in self._resident:
            raise ModelLoadError(request.model, stage, "the stage is not resident")
        start = self._clock.now()
        if stage is Stage.ENCODER:
            self._compute(self._seconds.encoder, stage, request, context)
            payload: dict[str, Any] = {"prompt_embeds": embed(request)}
        elif stage is Stage.DIT:
            payload = self._denoise(request, inputs or {}, context)
        else:
            self._compute(self._seconds.decoder, stage, request, context)
            payload = {"frames": decode(request, (inputs or {})["latents"])}
        return StageOutput(payload=payload, seconds=self._clock.now() - start)

    def tile_decodes(self, model: str, tiled: bool) -> None:
        """Count what was asked for in `tiled`."""
        self.card(model)
        self.tiled += tiled

    def allowed_dops(self, request: GenerationRequest, limit: int) -> tuple[int, ...]:
        """Powers of two, where there is anybody to meet."""
        self.card(request.model)
        if self._groups is None:
            return (1,)
        return tuple(2**power for power in range(limit.bit_length()))

    def run_in_group(
        self,
        request: GenerationRequest,
        inputs: Payload | None,
        context: GroupContext,
        seat: GroupSeat,
    ) -> Outcome:
        """Pretend to be a member; a step takes the less time the more members there are."""

        def step(state: Mapping[str, Any], members: int) -> Mapping[str, Any]:
            seconds = self._seconds.step / members
            self._compute(seconds, Stage.DIT, request, context, state["step"])
            return step_on(request, state)

        groups = self._groups or FakeGroups()
        member = FakeMember(groups, seat, context, request.num_inference_steps, step)
        if seat.ticket:
            return member.join()
        outcome = member.lead(begin_or_resume(request, inputs or {}))
        if outcome.payload is None:
            return outcome
        finished = outcome.end is End.FINISHED
        payload = {"latents": outcome.payload["latents"]} if finished else None
        return replace(outcome, payload=payload or {SNAPSHOT: outcome.payload})

    def meet(self, seat: GroupSeat) -> None:
        """Its groups need no forming; it keeps `seat` in `met`."""
        self.met = seat

    def member_lost(self, gpu: GpuId, cause: str) -> None:
        """Nothing to give up: members ask their contexts."""

    def info(self) -> EngineInfo:
        """Made-up memory figures, true residency."""
        return EngineInfo(
            device=self._device,
            kind="fake",
            memory_bytes=MEMORY_BYTES,
            allocated_bytes=STAGE_BYTES * len(self._resident),
            resident=tuple(self._resident),
        )

    def close(self) -> None:
        """Forget everything."""
        self._resident.clear()

    def _denoise(
        self, request: GenerationRequest, inputs: Payload, context: StageContext
    ) -> dict[str, Any]:
        state = begin_or_resume(request, inputs)
        total = request.num_inference_steps
        while state["step"] < total:
            self._compute(self._seconds.step, Stage.DIT, request, context, state["step"])
            state = step_on(request, state)
            action = context.boundary(state["step"], total)
            if action is Boundary.ABORT:
                raise StageStopped(action, step=state["step"])
            if action is Boundary.PREEMPT and state["step"] < total:
                raise StageStopped(action, {SNAPSHOT: state}, state["step"])
            if isinstance(action, Checkpoint):
                action.take({SNAPSHOT: state}, state["step"])
        return {"latents": state["latents"]}

    def _compute(
        self,
        seconds: float,
        stage: Stage,
        request: GenerationRequest,
        context: StageContext | GroupContext,
        step: int = 0,
    ) -> None:
        self._clock.wait(seconds, context.aborted)
        if context.aborted():
            raise StageStopped(Boundary.ABORT, step=step)
        for index, failure in enumerate(self._failures):
            due = (failure.stage, failure.request_id, failure.step) == (
                stage,
                request.request_id,
                step,
            )
            if due and (failure.times is None or self._failed[index] < failure.times):
                self._failed[index] += 1
                raise failure.error
