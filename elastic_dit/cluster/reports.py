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

from elastic_dit.state import Phase, Progress, StageRecord

__all__ = ["Outcome", "Report", "read_report", "topic_of", "write_report"]

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


_report = TypeAdapter(Report)


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
