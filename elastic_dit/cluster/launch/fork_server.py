"""Start worker processes from one that has imported the slow libraries already.

Importing torch and diffusers takes about ten seconds of CPU time. A process forked from one
that did so is there at once, and shares the memory of their code. Only for engines on CPUs: a
CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from multiprocessing import forkserver, resource_tracker
from typing import Any

import dask
from distributed.utils import get_mp_context

__all__ = ["HEAVY_PRELOAD", "LIGHT_PRELOAD", "fork_server", "stop_fork_server"]

LIGHT_PRELOAD = "elastic_dit.cluster.worker.engine_plugin"
"""Module that pulls in what every worker needs."""
HEAVY_PRELOAD = "elastic_dit.cluster.worker.preload"
"""Module that pulls in what a torch engine needs."""

_METHOD = "distributed.worker.multiprocessing-method"
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"

_HASH_SEED = "PYTHONHASHSEED"
_NANNYS_HASH_SEED = "6640"
"""What `distributed.Nanny` gives the processes it spawns, so that all workers hash alike."""

_lock = threading.Lock()
_users: list[str] = []


@contextlib.contextmanager
def fork_server(preload: str = HEAVY_PRELOAD) -> Iterator[None]:
    """Within it the nannies of this process fork their workers from a server.

    The server's imports go on in the background. Several users share one server, whose
    `preload` is that of the first; after the last it is gone.

    Parameters
    ----------
    preload : str
        Module to import in the server.
    """
    with _lock:
        if not _users:
            _start(preload)
        _users.append(preload)
    try:
        with dask.config.set({_METHOD: "forkserver"}):
            yield
    finally:
        with _lock:
            _users.remove(preload)
            if not _users:
                stop_fork_server()


def stop_fork_server() -> None:
    """End the server at once, whatever it is importing; processes it forked live on."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        # It looks at its control pipe only once its imports are done.
        with contextlib.suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


def _start(preload: str) -> None:
    with dask.config.set({_METHOD: "forkserver"}):
        get_mp_context()  # sets distributed's own list of modules, once
    forkserver.set_forkserver_preload([preload])
    # Before the signals are blocked, since its start unblocks them.
    resource_tracker.ensure_running()
    variables = {_HASH_SEED: _NANNYS_HASH_SEED, **dask.config.get(_ENVIRONMENT)}
    with _environment(variables), _sigint_blocked():
        forkserver.ensure_running()


@contextlib.contextmanager
def _environment(variables: Mapping[str, object]) -> Iterator[None]:
    """What Dask would set before a spawn: libraries read it at import, which is in the server."""
    added = {name: str(v) for name, v in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Ctrl-C in a terminal reaches all its processes: those started here shall not hear it.

    Whoever started them ends them; a KeyboardInterrupt in the midst of an import would only
    print a traceback. Processes inherit the mask.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
