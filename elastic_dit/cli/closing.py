"""Finish what must be finished, Ctrl-C or not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uninterrupted"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and its kin within the block; for the main thread only.

    A cluster that is left half closed leaves processes behind, so impatience must not cut its
    end short; what is in the block has its own time limit.
    """
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
