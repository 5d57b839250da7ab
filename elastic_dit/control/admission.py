"""Admission: which requests are let in, and which are known already."""

from __future__ import annotations

from collections import deque

from elastic_dit.config import ControlConfig
from elastic_dit.control.requests import RequestTable
from elastic_dit.errors import AdmissionRefused, RequestConflict
from elastic_dit.request import GenerationRequest

__all__ = ["UNKNOWN_RATE_RETRY_S", "Admission", "differing_fields"]

UNKNOWN_RATE_RETRY_S = 5.0
"""Retry-after while nothing has finished yet that would tell how fast requests leave."""

_RATE_WINDOW = 32
"""Latest ends from which the rate of leaving is taken."""


class Admission:
    """The gate before the request table.

    Parameters
    ----------
    config : ControlConfig
        `max_waiting` is the limit.
    table : RequestTable
    """

    def __init__(self, config: ControlConfig, table: RequestTable) -> None:
        self._config = config
        self._table = table
        self._ends: deque[float] = deque(maxlen=_RATE_WINDOW)

    def __repr__(self) -> str:
        return f"<Admission {self._table.waiting} of {self._config.max_waiting} waiting>"

    def admit(self, request: GenerationRequest, now: float) -> bool:
        """Let a request in, or recognise it.

        Returns
        -------
        bool
            True for a new request, to be accepted; False for one that is here already, live or
            lately finished, with the same body.

        Raises
        ------
        RequestConflict
            Where its id is taken by another body.
        AdmissionRefused
            Where too many wait, or their pictures take too much memory; with the time after
            which one place should be free.
        """
        known = self._table.get(request.request_id)
        if known is not None:
            differing = differing_fields(known.request, request)
            if differing:
                raise RequestConflict(request.request_id, differing)
            return False
        limit = self._config.max_waiting
        if self._table.waiting >= limit:
            reason = f"{self._table.waiting} requests wait already, the limit is {limit}"
            raise AdmissionRefused(reason, self.retry_after_s(now))
        shelf = self._table.pictures
        if not shelf.has_room(request):
            reason = f"requests hold {shelf.live_bytes} of {shelf.limit_bytes} bytes of images"
            raise AdmissionRefused(reason, self.retry_after_s(now))
        return True

    def note_end(self, now: float) -> None:
        """A request left."""
        self._ends.append(now)

    def retry_after_s(self, now: float) -> float:
        """Seconds until a place should be free, from how fast requests left lately."""
        if len(self._ends) < 2 or now <= self._ends[0]:
            return UNKNOWN_RATE_RETRY_S
        per_request_s = (now - self._ends[0]) / len(self._ends)
        excess = self._table.waiting - self._config.max_waiting + 1
        return per_request_s * max(1, excess)


def differing_fields(one: GenerationRequest, other: GenerationRequest) -> tuple[str, ...]:
    """Names of the fields in which two requests differ, in order of declaration."""
    return tuple(
        name
        for name in GenerationRequest.model_fields
        if getattr(one, name) != getattr(other, name)
    )
