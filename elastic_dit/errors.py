"""Every error elastic-dit raises, as one tree.

::

    ElasticDitError
    ├── ConfigError                 a setting is wrong                  (also ValueError)
    ├── InvalidRequest              a request asks for what cannot be   (also ValueError)
    │   ├── UnknownModel            no engine serves the named model
    │   └── DeadlineInfeasible      a deadline that cannot be met, however free the GPUs
    ├── RequestConflict             one request id, two different bodies
    ├── UnknownRequest              no request of that id is known, or no longer
    ├── ResultGone                  a request's result is not kept (any more)
    ├── AdmissionRefused            the queue is full; try again later
    ├── JournalError                accepted requests cannot be written down or read
    ├── GenerationFailed            an accepted request ended without a result
    ├── GenerationCancelled         an accepted request was cancelled   (also CancelledError)
    ├── ModelLoadError              a stage of a model could not be loaded
    ├── UnsupportedModel            a folder of no known family, or a part of one we cannot run
    │   └── UnsupportedParallelism  a degree of parallelism that would give wrong results
    ├── GroupBroken                 a member of a group died, hung or left it
    ├── TransferError               tensors did not arrive
    │   ├── ArtifactGone            the producer no longer holds them
    │   └── DigestMismatch          they arrived damaged
    ├── ClusterError                the Dask side is not there or not as expected
    │   ├── SchedulerUnreachable    nothing answers at the given address
    │   └── NotReady                no engine became ready in time
    ├── RibError                    the database of a profile does not do as it should
    └── SaveError                   a result could not be written       (also OSError)

Errors cross process borders, so each pickles by its constructor's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

__all__ = [
    "AdmissionRefused",
    "ArtifactGone",
    "ClusterError",
    "ConfigError",
    "DeadlineInfeasible",
    "DigestMismatch",
    "ElasticDitError",
    "GenerationCancelled",
    "GenerationFailed",
    "GroupBroken",
    "InvalidRequest",
    "JournalError",
    "ModelLoadError",
    "NotReady",
    "RequestConflict",
    "ResultGone",
    "RibError",
    "SaveError",
    "SchedulerUnreachable",
    "TransferError",
    "UnknownModel",
    "UnknownRequest",
    "UnsupportedModel",
    "UnsupportedParallelism",
]


class ElasticDitError(Exception):
    """Root of the tree: catch this to catch everything elastic-dit raises on purpose."""


class _FieldError(ElasticDitError, ValueError):
    """A named field holds a value that is not allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.field} = {_shorten(self.value)}: must be {self.allowed}"


class ConfigError(_FieldError):
    """A setting in a configuration file, flag or keyword is wrong.

    Parameters
    ----------
    field : str
        Dotted name of the setting, such as ``placement.policy``.
    value : object
        What was given.
    allowed : str
        What would have been right, to be read after "must be".

    Examples
    --------
    >>> print(ConfigError("devices", "x", "GPU numbers like 0,1,2"))
    devices = 'x': must be GPU numbers like 0,1,2
    """


class InvalidRequest(_FieldError):
    """A request asks for what its model cannot make; nothing has run.

    Parameters
    ----------
    field, value, allowed
        As in `ConfigError`; `field` is a field of `GenerationRequest`.
    """


class UnknownModel(InvalidRequest):
    """The request names a model that no engine serves."""


class DeadlineInfeasible(InvalidRequest):
    """The request takes longer than its deadline even on a cluster with nothing else to do."""


class RequestConflict(ElasticDitError):
    """A request id was used before with another body."""

    def __init__(self, request_id: str, differing: Sequence[str]) -> None:
        super().__init__(request_id, tuple(differing))
        self.request_id = request_id
        self.differing = tuple(differing)

    def __str__(self) -> str:
        fields = ", ".join(self.differing)
        return f"request_id = {self.request_id!r} is taken by a request that differs in {fields}"


class UnknownRequest(ElasticDitError, LookupError):
    """No request of that id is known: never submitted, or over for longer than is remembered."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return f"no request {self.request_id!r} is known, or no longer"


class ResultGone(ElasticDitError):
    """A request completed, but its result is not kept (any more)."""

    def __init__(self, request_id: str, cause: str) -> None:
        super().__init__(request_id, cause)
        self.request_id = request_id
        self.cause = cause

    def __str__(self) -> str:
        return f"the result of request {self.request_id} is gone: {self.cause}"


class JournalError(ElasticDitError):
    """The journal of accepted requests cannot be written or read; nothing is accepted without."""

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(path, cause)
        self.path = path
        self.cause = cause

    def __str__(self) -> str:
        return f"journal {self.path}: {self.cause}"


class AdmissionRefused(ElasticDitError):
    """The cluster cannot take this request now.

    Parameters
    ----------
    reason : str
        The limit that was met, with its value.
    retry_after_s : float
        Seconds after which the same request may be accepted.
    """

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason, retry_after_s)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.reason}; retry after {self.retry_after_s:.0f} s"


class GenerationFailed(ElasticDitError):
    """An accepted request ended without a result.

    Parameters
    ----------
    request_id : str
        The request.
    stage : str
        The stage that failed: ``encoder``, ``dit`` or ``decoder``.
    error_type : str
        Class name of the exception raised there.
    message : str
        Its message.
    attempts : int
        How often the request had been tried.
    """

    def __init__(
        self, request_id: str, stage: str, error_type: str, message: str, attempts: int = 1
    ) -> None:
        super().__init__(request_id, stage, error_type, message, attempts)
        self.request_id = request_id
        self.stage = stage
        self.error_type = error_type
        self.message = message
        self.attempts = attempts

    def __str__(self) -> str:
        tries = "" if self.attempts == 1 else f" after {self.attempts} attempts"
        return (
            f"request {self.request_id} failed in its {self.stage} stage{tries}: "
            f"{self.error_type}: {self.message}"
        )


class GenerationCancelled(ElasticDitError, CancelledError):
    """The request was cancelled before it had a result.

    Also a `concurrent.futures.CancelledError`, which is what code written for futures catches.
    """

    def __init__(self, request_id: str, reason: str = "cancelled by its client") -> None:
        super().__init__(request_id, reason)
        self.request_id = request_id
        self.reason = reason

    def __str__(self) -> str:
        return f"request {self.request_id}: {self.reason}"


class ModelLoadError(ElasticDitError):
    """A stage of a model could not be loaded: missing, corrupt or ill-fitting weights."""

    def __init__(self, model: str, stage: str, cause: str) -> None:
        super().__init__(model, stage, cause)
        self.model = model
        self.stage = stage
        self.cause = cause

    def __str__(self) -> str:
        return f"cannot load the {self.stage} stage of model {self.model!r}: {self.cause}"


class UnsupportedModel(ElasticDitError):
    """The folder holds a pipeline of no known family, or the family lacks what was asked."""


class UnsupportedParallelism(UnsupportedModel):
    """A model, request and degree of parallelism that together would give wrong results."""


class GroupBroken(ElasticDitError):
    """A group of GPUs can no longer be used: a member died, hung, left, or never came."""

    def __init__(self, group: str, cause: str) -> None:
        super().__init__(group, cause)
        self.group = group
        self.cause = cause

    def __str__(self) -> str:
        return f"group {self.group}: {self.cause}"


class TransferError(ElasticDitError):
    """Tensors of one stage did not reach the next."""


class ArtifactGone(TransferError):
    """The producer does not hold the artifact (any more): the stage must be run again."""


class DigestMismatch(TransferError):
    """What arrived is not what was sent."""


class ClusterError(ElasticDitError):
    """The Dask cluster is not there, or not as elastic-dit needs it."""


class SchedulerUnreachable(ClusterError):
    """Nothing answers at the scheduler's address within the time allowed."""


class NotReady(ClusterError):
    """No engine became ready to serve within the time allowed."""


class RibError(ElasticDitError):
    """The database of a profile does not answer, or does not hold what it should.

    Parameters
    ----------
    name : str
        Its URL without the password.
    cause : str
    """

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(name, cause)
        self.name = name
        self.cause = cause

    def __str__(self) -> str:
        return f"profile {self.name}: {self.cause}"


class SaveError(ElasticDitError, OSError):
    """A result could not be written to the given path.

    Parameters
    ----------
    path : str
        The target.
    cause : str
        What the operating system or the encoder said.
    """

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(path, cause)
        self.path = path
        self.cause = cause

    def __str__(self) -> str:
        return f"cannot save {self.path}: {self.cause}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.cause)


_SHOWN_CHARACTERS = 80


def _shorten(value: object) -> str:
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
