"""Waiting for conditions in tests: bounded, and without fixed sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 20.0
PERIOD_S = 0.01


async def eventually(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return once `condition()` holds; fail after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {condition}"
        await asyncio.sleep(PERIOD_S)
