"""The store on which groups meet, in a process beside the control plane.

In a process of its own, since it needs torch, whose import would hold the scheduler's event loop
for seconds. It ends with the scheduler, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable

__all__ = ["StoreHost"]

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 120.0
"""Longest start, torch's import on a busy machine included, seconds."""
_MOST_STARTS = 3
"""A store that keeps dying is given up; requests then run on one GPU each."""
_LONG_LIFE_S = 600.0
"""One that lived as long as this, seconds, does not keep dying: its death counts as the first."""


class StoreHost:
    """Starts the store's process, and another one should it die.

    Parameters
    ----------
    host : str
        Interface to listen on.
    tell : callable
        Called with the store's address, ``host:port``, when one listens, and with ``""`` when
        it is gone.

    Attributes
    ----------
    address : str
        Where it listens; empty while it does not.
    """

    def __init__(self, host: str, tell: Callable[[str], None]) -> None:
        self._host = host
        self._tell = tell
        self.address = ""
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StoreHost on {self._host}: {self.address or 'not there'}>"

    def open(self) -> None:
        """Start it in the background; opening again is fine."""
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    def forget(self, request_id: str) -> None:
        """Delete what groups wrote about a request that has ended."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"run/{request_id}/\n".encode())

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _serve(self) -> None:
        loop, deaths = asyncio.get_running_loop(), 0
        while deaths < _MOST_STARTS:
            began = loop.time()
            try:
                await self._serve_once()
            except (OSError, TimeoutError) as error:
                logger.warning("The store of groups does not start: %s", error)
            deaths = deaths + 1 if loop.time() - began < _LONG_LIFE_S else 1
            self._set("")
        logger.error("The store of groups died %d times: no more groups", _MOST_STARTS)

    def _set(self, address: str) -> None:
        self.address = address
        self._tell(address)

    async def _serve_once(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "elastic_dit.engine.store_process", self._host),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(_START_TIMEOUT_S):
                address = (await process.stdout.readline()).decode().strip()
            if address:
                self._process = process
                self._set(address)
            await process.wait()
        finally:
            self._process, self.address = None, ""
            if process.returncode is None:
                process.kill()
                await process.wait()
