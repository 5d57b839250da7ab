"""How the worker processes of this machine come into being."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dask

from elastic_dit.cluster.launch.devices import Device
from elastic_dit.cluster.launch.fork_server import (
    HEAVY_PRELOAD,
    LIGHT_PRELOAD,
    fork_server,
    stop_fork_server,
)
from elastic_dit.config import Config

__all__ = ["END_TIMEOUT_S", "end_quickly", "worker_processes"]

END_TIMEOUT_S = 10.0
"""Longest end of a start that is given up, seconds."""
_CALM: Mapping[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
}
"""Dask samples the stacks of its tasks, of which an engine has none, and of its event loop a
hundred times a second each, looks fifty times a second how late the loop is, and reads the
machine's counters twice: an engine's thread waits for the interpreter each time, and it was most
of what an idle worker did."""
_KILL_INTERVAL_S = 0.1
"""Wait between two looks at processes that may still be on their way up."""


@contextlib.contextmanager
def worker_processes(devices: Sequence[Device], config: Config) -> Iterator[None]:
    """Within it nannies fork the workers of virtual GPUs and spawn those of real ones.

    Neither is watched as closely as Dask would.

    Parameters
    ----------
    devices : sequence of Device
    config : Config
        ``engine.preload`` switches forking off.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(_CALM))
        if config.engine.preload and all(device.is_virtual for device in devices):
            is_heavy = config.engine.backend == "torch"
            stack.enter_context(fork_server(HEAVY_PRELOAD if is_heavy else LIGHT_PRELOAD))
        yield


async def end_quickly(nannies: Iterable[Any], beside: Iterable[Any] = ()) -> None:
    """End nannies whose start is given up; their workers have nothing to lose yet.

    Dask's own close waits for a worker to be up before it asks it to stop, and a worker that comes
    up waits for its nanny. Bounded by `END_TIMEOUT_S`.

    Parameters
    ----------
    nannies : iterable of distributed.Nanny
        Or of workers in this process, which are closed as they are.
    beside : iterable of distributed.Nanny
        Those whose workers go on.
    """
    every = list(nannies)
    if not any(getattr(nanny, "pid", None) for nanny in (*every, *beside)):
        # Nothing has been forked yet: the server still imports, and starts wait for that. Later
        # it must live on, since it is the parent of the forked and tells of their ends.
        stop_fork_server()
    closing = asyncio.gather(*(nanny.close() for nanny in every), return_exceptions=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT_S):
            while not closing.done():
                for nanny in every:
                    _kill(nanny)
                await asyncio.wait({closing}, timeout=_KILL_INTERVAL_S)


def _kill(nanny: Any) -> None:
    process = getattr(nanny, "process", None)
    if process is not None and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
