"""Who is who among submissions: new requests are let in, known ones recognised by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.archive import report_of
from elastic_dit.cluster.plane.endings import end_without_result, entry_of
from elastic_dit.cluster.plane.intake import Gate
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.reports import topic_of, write_report
from elastic_dit.control.admission import check_same_body
from elastic_dit.control.requests import RequestRecord
from elastic_dit.errors import ClusterError, InvalidRequest, ResultGone, UnknownRequest
from elastic_dit.events import RequestAccepted
from elastic_dit.journal.entry import Entry
from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase

__all__ = ["Registrar", "Taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A submission that was let in.

    Attributes
    ----------
    request : GenerationRequest
    dops : tuple of int
        Degrees of parallelism it may run at.
    owner : str
    past : Entry or None
        How it ended, where it is known to be over.
    is_new : bool
        Whether it runs because of this submission.
    """

    request: GenerationRequest
    dops: tuple[int, ...]
    owner: str
    past: Entry | None = None
    is_new: bool = True


class Registrar:
    """Lets requests in, or joins clients to those that are here or were.

    The same id and body is the same request: live, over, or in the journal. Without a journal
    one that is over and whose result nobody holds is forgotten, and runs again.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def __repr__(self) -> str:
        return f"<Registrar of {self._reactor.controller.table!r}>"

    # -- submissions
    async def look_up(self, request_ids: Iterable[str]) -> dict[str, Entry]:
        """What the journal says of some requests; nothing without one.

        Raises
        ------
        JournalError
            Where it cannot be read.
        """
        keeper = self._reactor.keeper
        if keeper is None:
            return {}
        await keeper.ready()
        wanted = tuple(request_ids)
        return await keeper.find(wanted) if wanted else {}

    def changed(
        self, requests: Iterable[GenerationRequest], entries: Mapping[str, Entry]
    ) -> list[GenerationRequest]:
        """Those of which the journal says something else by now than it did: they just ended."""
        found = []
        for request in requests:
            known, entry = self._known(request.request_id), entries.get(request.request_id)
            was_over = entry is not None and entry.finished_at is not None
            is_over = known.phase.is_terminal if known is not None else entry is not None
            if is_over and not was_over:
                found.append(request)
        return found

    def gate(self, owner: str, entries: Mapping[str, Entry]) -> Gate:
        """What refuses a request before engines are asked about it; known ones pass."""

        def check(request: GenerationRequest) -> None:
            if request.request_id in entries or self._known(request.request_id) is not None:
                return
            if self._reactor.keeper is not None:
                self._reactor.keeper.check_room()
            self._reactor.controller.admit(request, self._reactor.clock(), owner)

        return check

    def take(self, taken: Taken, client: str, *, is_seeded: bool, entry: Entry | None) -> Taken:
        """Let one request in, or join the client to the one of its id.

        Parameters
        ----------
        taken : Taken
            As it was submitted.
        client : str
            Id of the Dask client that holds the future.
        is_seeded : bool
            Whether its seed was given, not drawn.
        entry : Entry or None
            What the journal says of it now.

        Raises
        ------
        InvalidRequest, RequestConflict, AdmissionRefused
            As `elastic_dit.control.admission.Admission.admit`.
        ClusterError
            Where the client has left.
        """
        controller, scheduler = self._reactor.controller, self._reactor.scheduler
        request, key = taken.request, taken.request.request_id
        known = self._known(key)
        past = known.request if known is not None else entry.request if entry is not None else None
        if past is None and futures.is_expected(scheduler, key):
            raise InvalidRequest("request_id", key, "not the name of a Dask task")
        if past is not None and not is_seeded:
            # What was drawn for the first submission holds for its repetition.
            request = request.model_copy(update={"seed": past.seed})
        if past is not None and entry is not None:
            check_same_body(past, request)
        taken = Taken(request=request, dops=taken.dops, owner=taken.owner, past=entry, is_new=False)
        if entry is not None and self._is_over(entry):
            self._wait_for_ended(entry, client)
            return taken
        if self._is_spent(known):
            controller.forget(key)
        is_new = controller.admit(request, self._reactor.clock(), taken.owner, taken.dops)
        self._wait_for(key, client)
        if is_new:
            self._let_in(taken)
        return Taken(request=request, dops=taken.dops, owner=taken.owner, is_new=is_new)

    async def write_down(self, taken: Sequence[Taken]) -> None:
        """On return what was let in is safe.

        Raises
        ------
        JournalError
            Where it is not; then nothing may be accepted.
        """
        keeper = self._reactor.keeper
        if keeper is not None:
            now = self._reactor.wall_clock(self._reactor.clock())
            await keeper.accept(
                [
                    Entry(request=new.request, accepted_at=now, dops=new.dops, owner=new.owner)
                    for new in taken
                    if new.is_new
                ]
            )

    def receipt(self, request: GenerationRequest, past: Entry | None) -> dict[str, Any]:
        """A whole ``request`` and how it stands, ``report``."""
        report = self._reactor.report(request.request_id)
        if report is None and past is not None:
            report = report_of(past)
        return {
            "request": request.without_image_data().model_dump(mode="json"),
            "report": {} if report is None else write_report(report),
        }

    # -- by id
    async def join(self, request_id: str, client: str) -> dict[str, Any]:
        """Join a client to a known request; its `receipt`.

        Raises
        ------
        UnknownRequest
            Where there is none of that id.
        ResultGone
            Where it completed, and nobody has its result.
        NotReady
            Where nobody has brought the settings, which name the journal.
        ClusterError
            Where the client has left.
        """
        self._reactor.check_settled()
        entry = (await self.look_up([request_id])).get(request_id)
        known = self._known(request_id)
        if known is None and entry is None:
            raise UnknownRequest(request_id)
        if entry is None or (known is not None and not self._is_over(entry)):
            assert known is not None
            entry = entry_of(known)
        scheduler = self._reactor.scheduler
        is_live = known is not None and not known.phase.is_terminal
        if is_live or futures.is_expected(scheduler, request_id):
            self._wait_for(request_id, client)
        elif not (entry.has_result or entry.phase in (Phase.FAILED, Phase.CANCELLED)):
            raise ResultGone(request_id, "nobody waited for it, and none was kept")
        else:
            self._wait_for_ended(entry, client)
        return self.receipt(entry.request, entry)

    # -- within
    def _known(self, request_id: str) -> RequestRecord | None:
        return self._reactor.controller.table.get(request_id)

    def _is_over(self, entry: Entry) -> bool:
        """Whether the journal says how a request ended, and its result, if any, is to be had."""
        if entry.finished_at is None:
            return False
        is_there = futures.is_expected(self._reactor.scheduler, entry.request_id)
        return entry.phase is not Phase.COMPLETED or entry.has_result or is_there

    def _is_spent(self, known: RequestRecord | None) -> bool:
        """Whether a request ended and nobody holds its result any more: then it runs again."""
        return (
            known is not None
            and known.phase.is_terminal
            and not futures.is_expected(self._reactor.scheduler, known.request_id)
        )

    def _wait_for(self, key: str, client: str) -> None:
        scheduler = self._reactor.scheduler
        if client not in scheduler.clients:
            # Dask would make it anew, and keep results for one that never leaves.
            raise ClusterError(f"client {client} left while its request was checked")
        futures.expect(scheduler, key, client)
        scheduler.subscribe_topic(topic_of(client), client)

    def _wait_for_ended(self, entry: Entry, client: str) -> None:
        """Make a future that ends at once, or as soon as the result's file was read."""
        scheduler, keeper = self._reactor.scheduler, self._reactor.keeper
        is_there = futures.is_expected(scheduler, entry.request_id)
        self._wait_for(entry.request_id, client)
        if keeper is not None:
            keeper.results.adopt(entry.request_id)
        if is_there:
            return  # Dask tells the client
        if not end_without_result(scheduler, entry) and keeper is not None:
            keeper.results.bring_back(entry)

    def _let_in(self, taken: Taken) -> None:
        if self._reactor.keeper is not None:
            futures.hold(self._reactor.scheduler, taken.request.request_id)
        self._reactor.observe(
            RequestAccepted(request=taken.request, dops=taken.dops, owner=taken.owner)
        )
