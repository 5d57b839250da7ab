"""What clients ask of the control plane: submit, cancel, how far, what is served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from elastic_dit.cluster import futures
from elastic_dit.cluster.fences import Fences
from elastic_dit.cluster.intake import Intake
from elastic_dit.cluster.reactor import Reactor
from elastic_dit.cluster.refusals import refusals_as_data
from elastic_dit.cluster.reports import topic_of, write_report
from elastic_dit.control.requests import RequestRecord
from elastic_dit.errors import ClusterError, ElasticDitError, InvalidRequest, NotReady
from elastic_dit.events import CancelRequested, RequestAccepted
from elastic_dit.request import GenerationRequest

__all__ = ["RequestDesk"]

_ASK_TIMEOUT_S = 10.0
"""Longest wait for one engine's answer about a request; then another one is asked."""


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
            Fields of `GenerationRequest`, ``request_id`` and ``prompt`` at least.
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
        try:
            async with asyncio.timeout(answer_timeout_s):
                if fence is not None:
                    await self.fences.wait(client, fence)
                requests = await self._check(submissions, ready_timeout_s)
                dops = await asyncio.gather(*map(self._allowed_dops, requests))
        except TimeoutError:
            raise NotReady(
                f"no engine answered within {answer_timeout_s:g} s: is an elastic-dit-worker up?"
            ) from None
        if client not in self._reactor.scheduler.clients:
            raise ClusterError(f"client {client} left while its request was checked")
        taken: list[GenerationRequest] = []
        try:
            for options, request, allowed in zip(submissions, requests, dops, strict=True):
                taken.append(self._take(options, request, allowed, client))
        except ElasticDitError:
            for request in taken:
                await self.cancel(request.request_id, client, "its batch was refused")
            raise
        return {"accepted": [self._receipt(request) for request in taken]}

    @refusals_as_data
    async def cancel(self, request_id: str, client: str | None, reason: str) -> dict[str, Any]:
        """Stop a request for one client, for all of them if `client` is None.

        Returns
        -------
        dict
            ``cancelled``: False where the request had ended, or was not known.
        """
        if request_id not in self._reactor.controller.table.live:
            return {"cancelled": False}
        scheduler = self._reactor.scheduler
        if client is not None:
            # It knows; a notice could hit its next submission of the same id.
            futures.let_go(scheduler, request_id, client)
        if client is None or not futures.wanted_by(scheduler, request_id):
            self._reactor.observe(CancelRequested(request_id=request_id, reason=reason))
        return {"cancelled": True}

    @refusals_as_data
    async def outcome(self, request_id: str) -> dict[str, Any]:
        """How a request stands or ended (see `reports`); empty if it is not known."""
        report = self._reactor.report(request_id)
        return {} if report is None else write_report(report)

    @refusals_as_data
    async def models(self) -> dict[str, Any]:
        """``models``: cards of the models served, the default first."""
        return {"models": [card.model_dump(mode="json") for card in self._reactor.cards.cards]}

    async def _check(
        self, submissions: Sequence[Mapping[str, Any]], ready_timeout_s: float
    ) -> list[GenerationRequest]:
        """What they ask for, or the first error."""
        self._reactor.checking += 1
        try:
            checks = (self._intake.read(options, ready_timeout_s) for options in submissions)
            outcomes = await asyncio.gather(*checks, return_exceptions=True)
        finally:
            self._reactor.checking -= 1
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, GenerationRequest)]

    def _take(
        self,
        options: Mapping[str, Any],
        request: GenerationRequest,
        dops: tuple[int, ...],
        client: str,
    ) -> GenerationRequest:
        """Let one request in, or join the client to the one that is here."""
        controller, scheduler = self._reactor.controller, self._reactor.scheduler
        key = request.request_id
        known = controller.table.get(key)
        if known is None and futures.is_expected(scheduler, key):
            raise InvalidRequest("request_id", key, "not the name of a Dask task")
        if known is not None and options.get("seed") is None:
            # What was drawn for the first submission holds for its repetition.
            request = request.model_copy(update={"seed": known.request.seed})
        if self._is_spent(known):
            controller.forget(key)
        is_new = controller.admit(request, self._reactor.clock())
        futures.expect(scheduler, key, client)
        scheduler.subscribe_topic(topic_of(client), client)
        if is_new:
            self._reactor.observe(RequestAccepted(request=request, dops=dops))
        return request

    def _is_spent(self, known: RequestRecord | None) -> bool:
        """Whether a request ended and nobody holds its result any more: then it runs again."""
        return (
            known is not None
            and known.phase.is_terminal
            and not futures.is_expected(self._reactor.scheduler, known.request_id)
        )

    def _receipt(self, request: GenerationRequest) -> dict[str, Any]:
        report = self._reactor.report(request.request_id)
        return {
            "request": request.model_dump(mode="json"),
            "report": {} if report is None else write_report(report),
        }

    async def _count_tokens(self, model: str, text: str) -> int:
        """Ask one engine after the other, and those that are yet to come."""
        while (tokens := await self._count_now(model, text)) is None:
            await self._reactor.cards.next_engine()
        return tokens

    async def _allowed_dops(self, request: GenerationRequest) -> tuple[int, ...]:
        """Degrees of parallelism at which the model's engines can run a request."""
        if not self._reactor.uses_groups:
            return (1,)
        answer = await self._ask(
            request.model,
            lambda engine: engine.elastic_dit_allowed_dops(
                request=request.model_dump(mode="json"),
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
