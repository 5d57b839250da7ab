"""What an earlier life of the cluster left unfinished goes on in this one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from elastic_dit.cluster.plane import futures
from elastic_dit.errors import JournalError
from elastic_dit.events import CancelRequested, RequestAccepted
from elastic_dit.journal.entry import Ended, Entry
from elastic_dit.request import Stage
from elastic_dit.state import Failure, Phase

if TYPE_CHECKING:
    from elastic_dit.cluster.plane.reactor import Reactor

__all__ = ["Resumption", "ended"]

logger = logging.getLogger(__name__)


class Resumption:
    """Queues requests of the life before again, and watches over those that nobody can serve.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._models: dict[str, str] = {}
        self._served_since = reactor.clock()

    def __repr__(self) -> str:
        return f"<Resumption of {len(self._models)} requests>"

    def resume(self, entries: Sequence[Entry], kept: AbstractSet[str]) -> Iterator[Ended]:
        """Queue requests again, in their order.

        Parameters
        ----------
        entries : sequence of Entry
        kept : set of str
            Those of them whose results are there.

        Yields
        ------
        Ended
            Of each that does not go on: its result is there, it took the cluster down too
            often, or it cannot be read whole.
        """
        limit = self._reactor.config.control.max_attempts
        for entry in entries:
            if entry.request_id in kept:
                yield ended(entry, Phase.COMPLETED, has_result=True)
            elif (failure := _hopeless(entry, limit)) is not None:
                logger.error("Request %s cannot go on: %s", entry.request_id, failure)
                yield ended(entry, Phase.FAILED, failure=failure)
            else:
                self._queue(entry)

    def tick(self, now: float) -> None:
        """Cancel what waits for a model that no engine knows, once there have been some."""
        served = {card.name for card in self._reactor.cards.cards}
        if not self._models or not served:
            self._served_since = now
        elif now - self._served_since >= self._reactor.config.client.ready_timeout_s:
            for request_id, model in self._models.items():
                if model not in served:
                    reason = f"its model {model} is no longer served"
                    self._reactor.observe(CancelRequested(request_id=request_id, reason=reason))
            self._models.clear()

    def _queue(self, entry: Entry) -> None:
        self._models[entry.request_id] = entry.request.model
        futures.hold(self._reactor.scheduler, entry.request_id)
        self._reactor.observe(
            RequestAccepted(
                request=entry.request,
                dops=entry.dops,
                owner=entry.owner,
                attempt=entry.attempts + 1,
                age_s=max(0.0, time.time() - entry.accepted_at),
            )
        )


def _hopeless(entry: Entry, limit: int) -> Failure | None:
    """Why a request cannot run again; None where it can."""
    if entry.damage:
        error_type, message = JournalError.__name__, entry.damage
    elif entry.restarts >= limit:
        error_type = "ClusterLost"
        message = f"the cluster went down {entry.restarts} times while it ran"
    else:
        return None
    return Failure(error_type=error_type, message=message, stage=entry.stage or Stage.ENCODER)


def ended(entry: Entry, phase: Phase, **how: Any) -> Ended:
    """The end of a request as found, not as it happens; `how` are fields of `Ended`."""
    return Ended(
        request_id=entry.request_id,
        phase=phase,
        finished_at=entry.finished_at or time.time(),
        attempts=entry.attempts,
        **how,
    )
