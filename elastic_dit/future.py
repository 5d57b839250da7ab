"""The future of one generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import CancelledError
from time import monotonic
from typing import Any

import distributed

from elastic_dit.cluster.listener import Listener, Watch
from elastic_dit.cluster.reports import Report
from elastic_dit.errors import ElasticDitError, GenerationCancelled
from elastic_dit.request import GenerationRequest
from elastic_dit.results import Image, Video
from elastic_dit.state import Progress, StageRecord

__all__ = ["GenerationFuture"]

_SILENCE_S = 5.0
"""Seconds without a report of a running request, after which `progress` asks."""


class GenerationFuture(distributed.Future):  # type: ignore[misc]
    """A video or image to come: a `distributed.Future` that also tells progress.

    Made by `elastic_dit.Client.submit`. It takes part in `distributed.as_completed`, `wait` and
    ``gather`` as any other. When the last future of a request is gone, in all clients, the
    request is cancelled, or its result freed; with a journal (docs/durability.md) it goes on.

    On an asynchronous client, ``result``, ``exception`` and ``cancel`` return coroutines, and
    ``await future`` is the result.
    """

    def __init__(self, request_id: str, client: distributed.Client, listener: Listener) -> None:
        self._listener = listener
        self._watch = listener.watch(request_id)
        super().__init__(request_id, client)

    def begin(self, request: GenerationRequest, report: Report | None) -> None:
        """Take the control plane's answer to the submission."""
        self._watch.begin(request, report)

    def __repr__(self) -> str:
        phase = "" if self.done() else f", {self._watch.progress.phase}"
        return f"<GenerationFuture {self.key}: {self.status}{phase}>"

    def __await__(self) -> Generator[Any, None, Video | Image]:
        return self._result().__await__()

    @property
    def request(self) -> GenerationRequest:
        """The request as it runs: model defaults and seed filled in."""
        if self._watch.request is None:
            raise RuntimeError(f"{self!r} has not been submitted")
        return self._watch.request

    @property
    def records(self) -> tuple[StageRecord, ...]:
        """Stages that ran, once the request has completed; also in the result."""
        outcome = self._watch.outcome
        return () if outcome is None else outcome.records

    def progress(self) -> Progress:
        """Where the request stands, as last heard; does not block on an asynchronous client.

        Returns
        -------
        Progress
            ``phase``, ``step`` of ``total_steps``, ``eta_s`` (seconds), ``queue_position``.
        """
        watch = self._watch
        silent = monotonic() - watch.heard_at > _SILENCE_S
        if silent and watch.outcome is None and not self.client.asynchronous:
            self.client.sync(self._ask)
        return watch.progress

    async def updates(self) -> AsyncGenerator[Progress]:
        """Progress now and after each change, the end included; on an asynchronous client only.

        Yields
        ------
        Progress
            A reader who is slow misses what was between.
        """
        told = None
        while True:
            watch = self._watch
            if watch.progress != told:
                yield (told := watch.progress)
                continue  # there may have been news meanwhile
            if watch.outcome is not None or self.done():
                return
            await self._news(watch)

    async def _news(self, watch: Watch) -> None:
        """Wait for a report, or Dask's own notice; ask where neither comes."""
        waits = [asyncio.ensure_future(wait) for wait in (watch.news(), self._state.wait())]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=_SILENCE_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        if waits[0] not in done:
            await self._ask()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the `Video` or `Image`.

        Parameters
        ----------
        timeout : float, optional
            Longest wait, seconds.

        Raises
        ------
        GenerationFailed
            With type, message and stage of the error.
        GenerationCancelled
            Also a `concurrent.futures.CancelledError`.
        TimeoutError
            The request goes on.
        """
        return super().result(timeout=timeout)

    def exception(self, timeout: float | None = None, **kwargs: Any) -> Any:
        """Wait for the end; the error that `result` would raise, or None."""
        return super().exception(timeout=timeout, **kwargs)

    def cancel(self, reason: str | None = None, msg: str | None = None, **kwargs: Any) -> Any:
        """Stop the request in whatever phase it is; running work ends within a step.

        Where other clients wait for the same request, only this client's futures are cancelled.

        Parameters
        ----------
        reason : str, optional
            For the log and for `GenerationCancelled`.
        msg : str, optional
            Dask's name for more of the same.

        Returns
        -------
        bool
            False where the request had ended before; then nothing changes.
        """
        said = ": ".join(text for text in (reason, msg) if text) or "cancelled by its client"
        return self.client.sync(self._cancel, said, **kwargs)

    async def _result(self, raiseit: bool = True) -> Any:
        try:
            # Not to be raised in there: Dask keeps the error, and with it each frame it passes.
            outcome = await super()._result(raiseit=False)
        except CancelledError as cancelled:
            outcome = cancelled
        if isinstance(outcome, Video | Image):
            # One from a file tells its own, where nobody else remembers.
            return outcome.with_records(await self._all_records() or outcome.records)
        error = await self._exception()
        if error is None:
            return outcome
        if not raiseit:
            return (type(error), error, None) if self.status == "error" else error
        try:
            raise error
        finally:
            # The error holds this frame, and with it the future: without a cycle both go at once.
            del error

    async def _exception(self) -> Exception | None:
        await self._state.wait()
        error: Exception | None = self._state.exception
        if isinstance(error, ElasticDitError):
            return type(error)(*error.args)
        if isinstance(error, CancelledError):
            return GenerationCancelled(self.key, self._reason(error))
        return error

    def _reason(self, cancelled: CancelledError) -> str:
        if self.client.status == "closed":
            return "its client was closed"
        reason = str(getattr(cancelled, "reason", cancelled))
        return "cancelled" if reason == "unknown" else reason

    async def _cancel(self, reason: str) -> bool:
        if self.done() or not await self._listener.cancel(self.key, reason):
            return False
        # Not by Dask's cancel: its message may overtake a new submission of the same id.
        self.client.futures.pop(self.key, None)
        self._state.cancel(reason=reason)
        self._watch.cancel(reason)
        return True

    async def _all_records(self) -> tuple[StageRecord, ...]:
        if self._watch.outcome is None:
            await self._ask()
        return self.records

    async def _ask(self) -> None:
        report = await self._listener.ask(self.key)
        if report is not None:
            self._watch.hear(report)
