"""The store on which groups meet: a small key-value server that the control plane hosts."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from elastic_dit.errors import GroupBroken, UnsupportedModel

__all__ = ["GroupStore", "check_torch", "connect", "first_line"]

dist: Any = torch.distributed  # its types leave out half of what it exports

_PLACE = re.compile(r"^\[\S+:\d+\] ")
STORE_TIMEOUT_S = 30.0
"""Longest wait for one answer of the store, seconds."""

_NEEDED = {
    "TCPStore": ("clone", "compare_set", "list_keys"),
    "ProcessGroupGloo": (
        "_Options",
        "_allgather_base",
        "_set_default_timeout",
        "alltoall_base",
        "create_device",
    ),
}


def check_torch(module: Any = dist) -> None:
    """Refuse a torch that lacks what groups are built from.

    Raises
    ------
    UnsupportedModel
        Naming what is missing.
    """
    for name, attributes in _NEEDED.items():
        kind = getattr(module, name, None)
        if missing := [a for a in attributes if not hasattr(kind, a)]:
            raise UnsupportedModel(
                f"torch {torch.__version__} has no torch.distributed.{name}.{missing[0]}"
            )


class GroupStore:
    """Host of the store on which groups meet; lives with the control plane, never in a worker.

    Parameters
    ----------
    host : str
        Address to listen on.
    port : int
        0 for any free one.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        check_torch()
        # torch would listen on every interface; a listener of our own does not
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        self.host, self.port = host, int(listener.getsockname()[1])
        self._store: Any = dist.TCPStore(
            host,
            self.port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=STORE_TIMEOUT_S),
            master_listen_fd=listener.detach(),
        )

    def __repr__(self) -> str:
        return f"<GroupStore {self.address}>"

    @property
    def address(self) -> str:
        """``host:port`` for `connect`, with an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def forget(self, prefix: str) -> int:
        """Delete all keys that start with `prefix`, such as those of a finished run; how many."""
        keys = [key for key in self._store.list_keys() if key.startswith(prefix)]
        for key in keys:
            self._store.delete_key(key)
        return len(keys)

    def close(self) -> None:
        """Stop listening; groups that exist go on without a store."""
        self._store = None


def connect(address: str, timeout_s: float = STORE_TIMEOUT_S) -> Any:
    """Client of the store at `address`, ``host:port`` or ``[host]:port``.

    Parameters
    ----------
    address : str
    timeout_s : float
        Longest wait for the store, now and later, seconds.

    Raises
    ------
    GroupBroken
        Where nothing answers there.
    """
    host, _, port = address.rpartition(":")
    try:
        return dist.TCPStore(
            host.strip("[]"),
            int(port),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
        )
    except RuntimeError as error:
        raise GroupBroken("store", f"{address} does not answer: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """What torch says went wrong, without where in its source and without its advice.

    >>> first_line(RuntimeError("[/a/b/pair.cc:537] Read error: reset. This is typically caused"))
    'Read error: reset'
    >>> first_line(RuntimeError())
    'RuntimeError'
    """
    lines = str(error).strip().splitlines()
    line = _PLACE.sub("", lines[0]) if lines else type(error).__name__
    return line.split(". This is typically caused")[0]
