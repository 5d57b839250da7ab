"""What is left of processes, for tests that start some."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psutil

WAIT_S = 60.0


def until(condition: Callable[[], Any], wait_s: float = WAIT_S, every_s: float = 0.02) -> Any:
    """The first true value of `condition`, polled."""
    deadline = time.monotonic() + wait_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{condition} within {wait_s} s"
        time.sleep(every_s)
    return value


def alive_in_session(session: int) -> list[str]:
    """Command lines of the living processes of a session; a zombie only waits for its parent."""
    found = []
    for process in psutil.process_iter(["pid", "status", "cmdline"]):
        try:
            if os.getsid(process.pid) == session and process.info["status"] != "zombie":
                found.append(" ".join(process.info["cmdline"] or ()))
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def children() -> set[int]:
    """Living descendants of this process."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.is_running() and child.status() != "zombie"
    }
