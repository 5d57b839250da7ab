"""One stage of one request in the engine's thread: whatever happens comes back as a value.

An exception may be of any type, `SystemExit` and `StopIteration` included, and neither futures
nor event loops carry those. So none leaves this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.cluster.worker.mailbox import Mailbox
from elastic_dit.cluster.worker.outbox import Made
from elastic_dit.engine.protocol import Boundary, Engine, Payload, StageOutput, StageStopped
from elastic_dit.errors import ClusterError, GroupBroken, ModelLoadError
from elastic_dit.events import StartStage
from elastic_dit.request import Stage
from elastic_dit.state import Failure

__all__ = ["Failed", "Finished", "Outcome", "Stopped", "failed", "made", "run_stage"]

_RETRYABLE = (ModelLoadError, GroupBroken, ClusterError, MemoryError, OSError)
"""Errors that say more of this engine than of the request."""

_OUT_OF_MEMORY = "OutOfMemoryError"
"""Torch's own, by name: this module does not import torch."""

_BROKEN_DEVICE = "AcceleratorError"
"""Torch's error of a device that will refuse all further work of this process."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The stage ran to its end.

    Attributes
    ----------
    made : Made
    seconds : float
        On the device, seconds.
    result : object or None
        What the client gets, after the decoder only.
    """

    made: Made
    seconds: float
    result: Any


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stage left early, as told.

    Attributes
    ----------
    snapshot : Made or None
        What resumes it; None after an abort.
    step : int
        Denoising steps done.
    """

    snapshot: Made | None
    step: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The stage raised.

    Attributes
    ----------
    failure : Failure
    device_broken : bool
        Whether this process can do nothing more with its device.
    """

    failure: Failure
    device_broken: bool


Outcome = Finished | Stopped | Failed


def run_stage(engine: Engine, box: Mailbox, inputs: Payload | None) -> Outcome:
    """Run the stage that `box` stands for."""
    start = box.start
    try:
        with _tiled(engine, start):
            output = engine.run(start.stage, start.request, inputs, box)
        if box.aborted():
            return Stopped(None, 0)
        return Finished(made(output.payload), output.seconds, _result(box, output))
    except StageStopped as stop:
        return _stopped(stop, start.stage)
    except BaseException as error:
        return failed(error, start.stage)


@contextmanager
def _tiled(engine: Engine, start: StartStage) -> Iterator[None]:
    """Decode in tiles meanwhile, where the command says so."""
    if not start.tiled:
        yield
        return
    engine.tile_decodes(start.request.model, True)
    try:
        yield
    finally:
        engine.tile_decodes(start.request.model, False)


def failed(error: BaseException, stage: Stage) -> Failed:
    """What an exception says to the control plane.

    >>> failed(ValueError("no such sampler"), Stage.DIT).failure
    Failure(error_type='ValueError', message='no such sampler', stage=<Stage.DIT: 'dit'>, \
retryable=False)
    """
    name = type(error).__name__
    broken = name == _BROKEN_DEVICE
    failure = Failure(
        error_type=name,
        message=_message(error),
        stage=stage,
        retryable=broken or name == _OUT_OF_MEMORY or isinstance(error, _RETRYABLE),
    )
    return Failed(failure, broken)


def _stopped(stop: StageStopped, stage: Stage) -> Outcome:
    if stop.action is not Boundary.PREEMPT or stop.snapshot is None:
        return Stopped(None, stop.step)
    try:
        return Stopped(made(stop.snapshot), stop.step)
    except BaseException as error:
        return failed(error, stage)


def made(payload: Payload) -> Made:
    """A payload, ready to be kept and sent."""
    encoded = Encoded.of(payload)
    return Made(payload, encoded, encoded.digest())


def _result(box: Mailbox, output: StageOutput) -> Any:
    if box.start.stage is not Stage.DECODER:
        return None
    from elastic_dit.results import make_result

    return make_result(output.payload["frames"], box.start.request)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as nested:  # an exception's own __str__ may raise
        return f"(no message: {type(nested).__name__})"
