"""Answers that take long: how many there may be, and when their readers have gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from fastapi import Request

from elastic_dit.http.problems import RETRY_LATER_S, Gone, Problem

__all__ = ["Waits", "unless_gone"]

T = TypeVar("T")


class Waits:
    """Counts answers that last until a job is over, and refuses too many.

    Parameters
    ----------
    most : int

    Attributes
    ----------
    closing : asyncio.Event
        Set once the server ends: streams that could go on for ever end, too.

    Examples
    --------
    >>> waits = Waits(1)
    >>> with waits.one():
    ...     waits.check()
    Traceback (most recent call last):
    elastic_dit.http.problems.Problem: 1 clients wait here already; poll, or try again later
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._now = 0
        self.closing = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Waits: {self._now} of {self._most}>"

    def check(self) -> None:
        """Refuse one more.

        Raises
        ------
        Problem
            503.
        """
        if self._now >= self._most:
            message = f"{self._now} clients wait here already; poll, or try again later"
            later = {"Retry-After": str(RETRY_LATER_S)}
            raise Problem(503, "server_error", message, code="too_many_waits", headers=later)

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """One of them lasts as long as the block."""
        self._now += 1
        try:
            yield
        finally:
            self._now -= 1


async def unless_gone(request: Request, work: Awaitable[T], limit_s: float) -> T:
    """What `work` comes to, while the client waits for it.

    Parameters
    ----------
    request : Request
        Whose body has been read.
    work : awaitable
        Cancelled where it is not waited for any more.
    limit_s : float
        Longest wait, seconds.

    Raises
    ------
    Gone
    TimeoutError
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        done, _ = await asyncio.wait(
            (task, gone), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
        )
        if task in done:
            return task.result()
        raise Gone if gone in done else TimeoutError
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.wait((task, gone))


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
