"""A machine that a command starts: over SSH, in a container, as a pod."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

from distributed.deploy.spec import ProcessInterface

__all__ = ["CommandMachine"]

_GRACE_S = 10.0
"""Time for the command's own end after its engines have been retired, seconds."""
_END_TIMEOUT_S = 30.0
"""Longest orderly end of a command after SIGTERM, seconds; then it is killed."""


class CommandMachine(ProcessInterface):  # type: ignore[misc]
    """An entry of `distributed.SpecCluster` that runs a command for as long as it is wanted.

    The command is to run ``elastic-dit-worker`` somewhere, which ends by itself once its engines
    have been retired; only what has not ended then is sent SIGTERM. That it runs does not mean
    that its engines have joined: `MachineAdaptive` sees that at the control plane.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler; `SpecCluster` gives it.
    name : hashable
        Name of the machine; `SpecCluster` gives it.
    command : sequence of str
        Program and arguments, in which ``{scheduler}`` and ``{name}`` are replaced.
    grace_s : float
        Time for its own end before it is sent SIGTERM, seconds.

    Examples
    --------
    >>> entry = {                                                          # doctest: +SKIP
    ...     "cls": CommandMachine,
    ...     "options": {"command": ["ssh", "-tt", "gpu7", "elastic-dit-worker", "{scheduler}",
    ...                             "--name", "{name}"]},
    ...     "group": [f"-{index}" for index in range(8)],
    ... }
    """

    def __init__(
        self,
        scheduler: str,
        *,
        name: Hashable,
        command: Sequence[str],
        grace_s: float = _GRACE_S,
        **_: Any,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.name = name
        self._words = [word.format(scheduler=scheduler, name=name) for word in command]
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<CommandMachine {self.name}: {' '.join(self._words)}>"

    async def start(self) -> None:
        """Run the command.

        Raises
        ------
        OSError
            Where there is no such program.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.DEVNULL
        )
        await super().start()

    async def close(self) -> None:
        """Wait for its end, help it along, and in the end force it."""
        process = self._process
        if process is not None:
            for hurry, wait_s in (
                (_nothing, self._grace_s),
                (process.terminate, _END_TIMEOUT_S),
                (process.kill, _END_TIMEOUT_S),
            ):
                with contextlib.suppress(ProcessLookupError):
                    hurry()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), wait_s)
                    break
        await super().close()


def _nothing() -> None:
    """Let it end by itself."""
