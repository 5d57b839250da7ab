"""How requests end: what is written of it, and what becomes of futures that come later."""

from __future__ import annotations

from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.control.requests import RequestRecord
from elastic_dit.errors import GenerationFailed
from elastic_dit.events import Cancelled, Complete, Fail
from elastic_dit.journal.entry import Ended, Entry
from elastic_dit.state import Failure, Phase

__all__ = ["end_without_result", "ended_by", "entry_of"]


def ended_by(
    command: Complete | Fail | Cancelled, at: float, attempts: int, has_result: bool
) -> Ended:
    """What is written of an end.

    Parameters
    ----------
    command : Complete, Fail or Cancelled
    at : float
        Wall-clock time, seconds since the epoch.
    attempts : int
        The newest that began.
    has_result : bool
        Whether its result was kept.
    """
    match command:
        case Complete(request_id=key, records=records):
            phase = Phase.COMPLETED
            how: dict[str, Any] = {"records": records, "has_result": has_result}
        case Fail(request_id=key, failure=failure, attempts=attempts):
            phase, how = Phase.FAILED, {"failure": failure}
        case Cancelled(request_id=key, reason=reason):
            phase, how = Phase.CANCELLED, {"reason": reason}
    return Ended(request_id=key, phase=phase, finished_at=at, attempts=attempts, **how)


def end_without_result(scheduler: Any, entry: Entry) -> bool:
    """End the futures of a request that failed or was cancelled; False where it completed."""
    if entry.phase is Phase.CANCELLED:
        futures.withdraw(scheduler, entry.request_id, entry.reason)
    elif entry.failure is not None:
        futures.fail(scheduler, entry.request_id, _failed(entry, entry.failure))
    else:
        return False
    return True


def entry_of(record: RequestRecord) -> Entry:
    """How a request ended, as a journal would have it; by the control plane's own clock."""
    is_failed = record.phase is Phase.FAILED
    return Entry(
        request=record.request,
        accepted_at=record.accepted_at,
        owner=record.owner,
        attempts=record.attempt,
        phase=record.phase,
        finished_at=record.finished_at,
        records=tuple(record.records),
        failure=record.failures[-1] if is_failed else None,
        reason="cancelled",
    )


def _failed(entry: Entry, failure: Failure) -> GenerationFailed:
    stage, attempts = str(failure.stage), max(1, entry.attempts)
    return GenerationFailed(entry.request_id, stage, failure.error_type, failure.message, attempts)
