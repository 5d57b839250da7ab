"""What clients ask of the control plane: submit, cancel, how far, what is served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from elastic_dit.cluster.fences import Fences
from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.archive import report_of
from elastic_dit.cluster.plane.intake import Intake
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.plane.registrar import Registrar, Taken
from elastic_dit.cluster.refusals import refusals_as_data
from elastic_dit.cluster.reports import write_report
from elastic_dit.control.admission import UNKNOWN_RATE_RETRY_S
from elastic_dit.errors import (
    AdmissionRefused,
    ClusterError,
    ElasticDitError,
    InvalidRequest,
    NotReady,
)
from elastic_dit.events import CancelRequested
from elastic_dit.journal.entry import Entry
from elastic_dit.request import GenerationRequest

__all__ = ["RequestDesk"]

_ASK_TIMEOUT_S = 10.0
"""Longest wait for one engine's answer about a request; then another one is asked."""
_FENCE_TIMEOUT_S = 10.0
"""Longest wait for what a client sent before, over a connection of its own."""
_MOST_CHECKING = 1_000
"""Submissions that may be checked at once, or wait for the first engine."""
_LONGEST_OWNER = 128
OWNER = "owner"
"""Name of the one option that is no field of a request."""


class RequestDesk:
    """Answers clients' calls. Refusals travel as plain data and are raised at the client.

    Parameters
    ----------
    reactor : Reactor

    Attributes
    ----------
    fences : Fences
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.fences = Fences()
        self._intake = Intake(reactor.cards, self._count_tokens)
        self._registrar = Registrar(reactor)

    def __repr__(self) -> str:
        return f"<RequestDesk {self._intake}>"

    @refusals_as_data
    async def submit(
        self,
        submissions: Sequence[Mapping[str, Any]],
        client: str,
        ready_timeout_s: float,
        answer_timeout_s: float,
        fence: str | None = None,
    ) -> dict[str, Any]:
        """Take requests in, all of them or none.

        Parameters
        ----------
        submissions : sequence of mapping
            Fields of `GenerationRequest`, ``request_id`` and ``prompt`` at least, and perhaps
            the ``owner``.
        client : str
            Id of the Dask client that will hold the futures.
        ready_timeout_s : float
            Longest wait for the first engine, seconds.
        answer_timeout_s : float
            Bound of the whole, seconds: what is not accepted by then never is.
        fence : str, optional
            Mark in the client's stream that must have passed before.

        Returns
        -------
        dict
            ``accepted``: for each its whole ``request`` and how it stands, ``report``.
        """
        had_journal = self._reactor.keeper is not None  # it may come with the first engine
        try:
            async with asyncio.timeout(answer_timeout_s):
                if fence is not None:
                    await self.fences.wait(client, fence)
                requests, entries = await self._check(submissions, ready_timeout_s, client)
                dops = await asyncio.gather(*map(self.allowed_dops, requests))
        except TimeoutError:
            raise NotReady(
                f"no engine answered within {answer_timeout_s:g} s: is an elastic-dit-worker up?"
            ) from None
        doubtful = self._registrar.changed(requests, entries) if had_journal else requests
        entries |= await self._registrar.look_up(request.request_id for request in doubtful)
        taken: list[Taken] = []
        try:
            for options, request, allowed in zip(submissions, requests, dops, strict=True):
                key = request.request_id
                wanted = Taken(request=request, dops=allowed, owner=_owner(options, client))
                is_seeded, entry = options.get("seed") is not None, entries.get(key)
                taken.append(self._registrar.take(wanted, client, is_seeded=is_seeded, entry=entry))
            await self._registrar.write_down(taken)
        except ElasticDitError as error:
            for one in taken:
                if one.is_new:
                    self._stop(one.request.request_id, client, f"refused: {error}")
            raise
        return {"accepted": [self._registrar.receipt(one.request, one.past) for one in taken]}

    @refusals_as_data
    async def join(self, request_id: str, client: str, fence: str | None = None) -> dict[str, Any]:
        """Make a client wait for a request that is known already.

        Parameters
        ----------
        request_id, client, fence
            As for `submit`.

        Returns
        -------
        dict
            Its whole ``request`` and how it stands, ``report``.
        """
        if fence is not None:
            try:
                async with asyncio.timeout(_FENCE_TIMEOUT_S):
                    await self.fences.wait(client, fence)
            except TimeoutError:
                raise ClusterError(f"client {client} is silent") from None
        return await self._registrar.join(request_id, client)

    @refusals_as_data
    async def cancel(self, request_id: str, client: str | None, reason: str) -> dict[str, Any]:
        """Stop a request for one client, for all of them if `client` is None.

        Returns
        -------
        dict
            ``cancelled``: False where the request had ended, or was not known.
        """
        is_live = request_id in self._reactor.controller.table.live
        if is_live:
            self._stop(request_id, client, reason)
            if self._reactor.keeper is not None:
                await self._reactor.keeper.settled(request_id)
        return {"cancelled": is_live}

    @refusals_as_data
    async def outcome(self, request_id: str) -> dict[str, Any]:
        """How a request stands or ended (see `reports`); empty if it is not known."""
        report = self._reactor.report(request_id)
        if report is None:
            entry = (await self._registrar.look_up([request_id])).get(request_id)
            report = None if entry is None else report_of(entry)
        return {} if report is None else write_report(report)

    @refusals_as_data
    async def models(self) -> dict[str, Any]:
        """``models``: cards of the models served, the default first."""
        return {"models": [card.model_dump(mode="json") for card in self._reactor.cards.cards]}

    async def _check(
        self, submissions: Sequence[Mapping[str, Any]], ready_timeout_s: float, client: str
    ) -> tuple[list[GenerationRequest], dict[str, Entry]]:
        """What they ask for, and what the journal said of their ids; or the first error."""
        if self._reactor.checking >= _MOST_CHECKING:
            reason = f"{self._reactor.checking} submissions are being checked already"
            raise AdmissionRefused(reason, UNKNOWN_RATE_RETRY_S)
        self._reactor.checking += 1
        try:
            ids = [str(options.get("request_id")) for options in submissions]
            entries = await self._registrar.look_up(ids)
            checks = (
                self._intake.read(
                    {name: value for name, value in options.items() if name != OWNER},
                    ready_timeout_s,
                    self._registrar.gate(_owner(options, client), entries),
                )
                for options in submissions
            )
            outcomes = await asyncio.gather(*checks, return_exceptions=True)
        finally:
            self._reactor.checking -= 1
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        requests = [outcome for outcome in outcomes if isinstance(outcome, GenerationRequest)]
        return requests, entries

    def _stop(self, request_id: str, client: str | None, reason: str) -> None:
        """Stop a live request for one client, or for all."""
        scheduler = self._reactor.scheduler
        if client is not None:
            # It knows; a notice could hit its next submission of the same id.
            futures.let_go(scheduler, request_id, client)
        if client is None or not futures.wanted_by(scheduler, request_id):
            self._reactor.observe(CancelRequested(request_id=request_id, reason=reason))

    async def _count_tokens(self, model: str, text: str) -> int:
        """Ask one engine after the other, and those that are yet to come."""
        while (tokens := await self._count_now(model, text)) is None:
            await self._reactor.cards.next_engine()
        return tokens

    async def allowed_dops(self, request: GenerationRequest) -> tuple[int, ...]:
        """Degrees of parallelism at which the model's engines can run a request."""
        if not self._reactor.uses_groups:
            return (1,)
        answer = await self._ask(
            request.model,
            lambda engine: engine.elastic_dit_allowed_dops(
                request=request.without_image_data().model_dump(mode="json"),
                limit=self._reactor.config.control.slots_per_node,
            ),
        )
        return tuple(answer) if isinstance(answer, list | tuple) else (1,)

    async def _count_now(self, model: str, text: str) -> int | None:
        answer = await self._ask(
            model, lambda engine: engine.elastic_dit_count_tokens(model=model, text=text)
        )
        return answer if isinstance(answer, int) else None

    async def _ask(self, model: str, question: Callable[[Any], Awaitable[Any]]) -> Any:
        """What the first engine of a model that can answers; None where none can."""
        for member in self._reactor.directory.members:
            if model not in {card.name for card in member.hello.models}:
                continue
            try:
                async with asyncio.timeout(_ASK_TIMEOUT_S):
                    answer = await question(self._reactor.scheduler.rpc(member.address))
            except (OSError, TimeoutError):
                continue
            if isinstance(answer, int | list | tuple):
                return answer
        return None


def _owner(options: Mapping[str, Any], client: str) -> str:
    """On whose behalf a submission comes."""
    owner = options.get(OWNER)
    if owner is None:
        return client
    if not isinstance(owner, str) or not 0 < len(owner) <= _LONGEST_OWNER:
        raise InvalidRequest(OWNER, owner, f"a text of 1 to {_LONGEST_OWNER} characters")
    return owner
