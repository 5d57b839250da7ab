"""Ctrl-C and SIGTERM as an event, for commands that run other processes.

A terminal sends Ctrl-C to every process of its foreground group, at any moment. Here the signal
is blocked, in this process and hence in all it starts, and one thread waits for it. So nobody is
torn out of an import or a handshake, and the children end when their parent ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from types import FrameType, TracebackType
from typing import Self

__all__ = ["IMPATIENT_EXIT_CODE", "Interrupts", "interruptible"]

IMPATIENT_EXIT_CODE = 130
"""Exit code after a second interrupt, as shells count Ctrl-C."""


_current: list[Interrupts] = []


@contextlib.contextmanager
def interruptible(on_second: Callable[[], None] | None = None) -> Iterator[Interrupts]:
    """The `Interrupts` in force, or new ones where there are none."""
    if _current:
        yield _current[-1]
        return
    with Interrupts(on_second) as interrupts:
        _current.append(interrupts)
        try:
            yield interrupts
        finally:
            _current.remove(interrupts)


class Interrupts:
    """Within it SIGINT and SIGTERM set an event; a second one ends the process at once.

    Use it in the main thread, before other threads and processes are started.

    Parameters
    ----------
    on_second : callable, optional
        Called before a second signal ends the process.

    Examples
    --------
    >>> with Interrupts() as interrupts:
    ...     interrupts.fired
    False
    """

    def __init__(self, on_second: Callable[[], None] | None = None) -> None:
        self._on_second = on_second
        self._fired = threading.Event()
        self._waiters: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Interrupts: {'fired' if self.fired else 'quiet'}>"

    @property
    def fired(self) -> bool:
        """Whether a signal came."""
        return self._fired.is_set()

    def __enter__(self) -> Self:
        # Its start unblocks SIGINT; started already it leaves the mask alone.
        resource_tracker.ensure_running()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        # SIGINT too: a thread that a library started before does not block it.
        self._previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        self._open = True
        self._thread = threading.Thread(
            target=self._watch, name="elastic-dit-interrupts", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        signal.pthread_kill(self._thread.ident or 0, signal.SIGINT)
        self._thread.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    async def wait(self) -> None:
        """Until a signal comes."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(event.set)

        with self._lock:
            self._waiters.append(wake)
        if self.fired:
            return
        await event.wait()

    def _watch(self) -> None:
        while True:
            signal.sigwait({signal.SIGINT})
            if not self._open:
                return
            self._fire()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._fire()

    def _fire(self) -> None:
        if self.fired:
            if self._on_second is not None:
                self._on_second()
            os._exit(IMPATIENT_EXIT_CODE)
        self._fired.set()
        for wake in tuple(self._waiters):
            wake()
