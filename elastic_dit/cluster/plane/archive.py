"""What is known of requests by id: the control plane's own records, the journal's behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.refusals import refusals_as_data
from elastic_dit.cluster.reports import Outcome, Report, RequestStatus, write_status
from elastic_dit.control.requests import RequestRecord
from elastic_dit.errors import InvalidRequest, UnknownRequest
from elastic_dit.journal.entry import Entry
from elastic_dit.journal.journal import Page
from elastic_dit.state import Phase, Progress

__all__ = ["MOST_AT_ONCE", "Archive", "report_of"]

MOST_AT_ONCE = 1_000
"""Requests in one answer."""


class Archive:
    """Answers what clients ask about requests that they need not have submitted.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def __repr__(self) -> str:
        return f"<Archive of {self._reactor!r}>"

    @refusals_as_data
    async def status_of(self, request_id: str) -> dict[str, Any]:
        """How one request stands or ended (see `reports.write_status`)."""
        self._reactor.check_settled()
        entry = await self._entry(request_id)
        record = self._reactor.controller.table.get(request_id)
        if record is None and entry is None:
            raise UnknownRequest(request_id)
        return write_status(self._status(record, entry))

    @refusals_as_data
    async def requests(
        self,
        limit: int,
        after: str | None = None,
        newest_first: bool = True,
        ended: bool | None = None,
        owner: str | None = None,
    ) -> dict[str, Any]:
        """A part of the list of all requests, as `elastic_dit.Client.requests` describes.

        Returns
        -------
        dict
            ``requests``: a list of `reports.write_status`.
        """
        self._reactor.check_settled()
        if limit < 1:
            raise InvalidRequest("limit", limit, "1 or more")
        limit = min(limit, MOST_AT_ONCE)
        page = Page(limit=limit, after=after, newest_first=newest_first, ended=ended, owner=owner)
        table = self._reactor.controller.table
        if self._reactor.keeper is None:
            statuses = [self._status(record, None) for record in self._listed(page)]
        else:
            await self._reactor.keeper.ready()
            entries = await self._reactor.keeper.page(page)
            statuses = [self._status(table.get(entry.request_id), entry) for entry in entries]
        return {"requests": [write_status(status) for status in statuses]}

    async def _entry(self, request_id: str) -> Entry | None:
        if self._reactor.keeper is None:
            return None
        await self._reactor.keeper.ready()
        return (await self._reactor.keeper.find([request_id])).get(request_id)

    def _listed(self, page: Page) -> Iterator[RequestRecord]:
        """The page from the control plane's own records."""
        table = self._reactor.controller.table
        records: Sequence[RequestRecord] = sorted(
            (*table.live.values(), *table.finished.values()),
            key=lambda record: record.sequence,
            reverse=page.newest_first,
        )
        if page.after is not None:
            ids = [record.request_id for record in records]
            if page.after not in ids:
                raise UnknownRequest(page.after)
            records = records[ids.index(page.after) + 1 :]
        listed = [r for r in records if page.has(r.phase.is_terminal, r.owner)]
        yield from listed[: page.limit]

    def _status(self, record: RequestRecord | None, entry: Entry | None) -> RequestStatus:
        """Of a live request the record knows more, of one that is over the entry does."""
        is_over = entry is not None and entry.finished_at is not None
        if entry is not None and (record is None or (is_over and record.phase.is_terminal)):
            return self._of_entry(entry)
        assert record is not None
        return self._of_record(record)

    def _of_entry(self, entry: Entry) -> RequestStatus:
        keeper = self._reactor.keeper
        failure = entry.failure
        return RequestStatus(
            request=entry.request,
            progress=report_of(entry).progress,
            accepted_at=entry.accepted_at,
            finished_at=entry.finished_at,
            records=entry.records,
            reason=str(failure or entry.reason),
            error_type=failure.error_type if failure else "",
            owner=entry.owner,
            has_result=entry.has_result,
            expires_at=None if keeper is None else keeper.expires_at(entry.finished_at),
        )

    def _of_record(self, record: RequestRecord) -> RequestStatus:
        report = self._reactor.report(record.request_id)
        assert report is not None
        is_failed = record.phase is Phase.FAILED
        is_completed = record.phase is Phase.COMPLETED
        end = record.finished_at
        return RequestStatus(
            request=record.request.without_image_data(),
            progress=report.progress,
            accepted_at=self._reactor.wall_clock(record.accepted_at),
            finished_at=None if end is None else self._reactor.wall_clock(end),
            records=tuple(record.records),
            reason="" if report.outcome is None else report.outcome.reason,
            error_type=record.failures[-1].error_type if is_failed else "",
            owner=record.owner,
            has_result=is_completed
            and futures.is_expected(self._reactor.scheduler, record.request_id),
        )


def report_of(entry: Entry) -> Report:
    """How a request that is over ended, as its client hears it."""
    phase, attempts = entry.phase, max(1, entry.attempts)
    progress = Progress(
        request_id=entry.request_id,
        phase=phase,
        step=entry.request.num_inference_steps if phase is Phase.COMPLETED else 0,
        total_steps=entry.request.num_inference_steps,
        eta_s=0.0 if phase.is_terminal else None,
        attempt=attempts,
        at=entry.finished_at or entry.accepted_at,
    )
    if not phase.is_terminal:
        return Report(progress=progress)
    outcome = Outcome(
        request_id=entry.request_id,
        phase=phase,
        records=entry.records,
        attempts=attempts,
        reason=str(entry.failure or entry.reason),
    )
    return Report(progress=progress, outcome=outcome)
