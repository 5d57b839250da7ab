"""What the control plane tells clients: progress, and how a request ended.

Both go as Dask events on a topic of the client's own. The event that ends a request precedes
Dask's own notice on the same ordered stream, so whoever sees the future done has its records too.
Where an event was missed (a reconnect), ``elastic_dit_outcome`` tells it on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase, Progress, StageRecord

__all__ = [
    "Outcome",
    "Report",
    "RequestStatus",
    "read_report",
    "read_status",
    "topic_of",
    "write_report",
    "write_status",
]

_MARK = "elastic_dit"
"""Key of a report in an event or a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a request ended.

    Attributes
    ----------
    request_id : str
    phase : Phase
        ``completed``, ``failed`` or ``cancelled``.
    records : tuple of StageRecord
        Stages that ran, for a completed request.
    attempts : int
        Tries it took.
    reason : str
        Error or reason of a request without a result.
    """

    request_id: str
    phase: Phase
    records: tuple[StageRecord, ...] = ()
    attempts: int = 1
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One message to a client; `outcome` with the last of a request only."""

    progress: Progress
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """All that is known of one request, live or over; for those who hold no future of it.

    Attributes
    ----------
    request : GenerationRequest
        Model defaults and seed filled in.
    progress : Progress
    accepted_at : float
        Wall-clock time of its acceptance, seconds since the epoch.
    finished_at : float or None
        The same of its end.
    records : tuple of StageRecord
        Stages that ran so far.
    reason : str
        Error or reason of a request that ended without a result.
    error_type : str
        Class name of the error of a failed one.
    owner : str
        Who asked for it, as told at its submission.
    has_result : bool
        Whether `elastic_dit.Client.future` can fetch its result.
    expires_at : float or None
        When it will be forgotten, seconds since the epoch; None where no journal says.
    """

    request: GenerationRequest
    progress: Progress
    accepted_at: float
    finished_at: float | None = None
    records: tuple[StageRecord, ...] = ()
    reason: str = ""
    error_type: str = ""
    owner: str = ""
    has_result: bool = False
    expires_at: float | None = None

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.progress.phase


_report = TypeAdapter(Report)
_status = TypeAdapter(RequestStatus)


def topic_of(client: str) -> str:
    """Topic of the reports to one Dask client; not its bare id, to which Dask writes itself."""
    return f"elastic-dit-{client}"


def write_report(report: Report) -> dict[str, Any]:
    """Plain form, for an event or a reply.

    >>> report = Report(progress=Progress(request_id="r", phase=Phase.QUEUED))
    >>> read_report(write_report(report)) == report
    True
    """
    return {_MARK: _report.dump_python(report, mode="json")}


def read_report(wire: Mapping[str, Any]) -> Report | None:
    """Inverse of `write_report`; None where there is none.

    >>> read_report({}) is None
    True
    """
    return _report.validate_python(wire[_MARK]) if _MARK in wire else None


def write_status(status: RequestStatus) -> dict[str, Any]:
    """Plain form of a `RequestStatus`; `read_status` is its inverse."""
    plain: dict[str, Any] = _status.dump_python(status, mode="json")
    return plain


def read_status(wire: Mapping[str, Any]) -> RequestStatus:
    """Inverse of `write_status`."""
    return _status.validate_python(wire)
