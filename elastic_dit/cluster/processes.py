"""How the worker processes of this machine come into being."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elastic_dit.cluster.devices import Device
from elastic_dit.cluster.fork_server import (
    HEAVY_PRELOAD,
    LIGHT_PRELOAD,
    fork_server,
    stop_fork_server,
)
from elastic_dit.config import Config

__all__ = ["hurry_start", "worker_processes"]


@contextlib.contextmanager
def worker_processes(devices: Sequence[Device], config: Config) -> Iterator[None]:
    """Within it nannies fork the workers of virtual GPUs and spawn those of real ones.

    Parameters
    ----------
    devices : sequence of Device
    config : Config
        ``engine.preload`` switches forking off.
    """
    if not config.engine.preload or not all(device.is_virtual for device in devices):
        yield
        return
    with fork_server(HEAVY_PRELOAD if config.engine.backend == "torch" else LIGHT_PRELOAD):
        yield


def hurry_start(nannies: Iterable[Any]) -> None:
    """Let a start that is to be given up fail at once, if it still waits for imports.

    Once the first worker has been forked the imports are over, and the server must live for the
    others to end in good order: it is their parent.
    """
    if not any(getattr(nanny, "pid", None) for nanny in nannies):
        stop_fork_server()
