"""What differs between a GPU and a CPU under an engine."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

__all__ = [
    "VIRTUAL_KIND",
    "allocated_bytes",
    "device_kind",
    "freeing_memory",
    "keep_freed_memory",
    "memory_bytes",
    "prepare",
    "release_memory",
    "synchronize",
]

_Result = TypeVar("_Result")

VIRTUAL_KIND = "virtual"
"""Kind of a GPU that is played by CPU threads."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TRIM_BYTES = 2**31 - 1
_PAD_BYTES = 2**28


def prepare(device: torch.device, cpu_threads: int) -> None:
    """Make `device` the calling thread's own; torch keeps both settings for each thread."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(cpu_threads)


def keep_freed_memory() -> bool:
    """Tell glibc to keep large blocks it got back; whether it is glibc and agreed.

    By default it returns every block over 32 MB to the kernel at once, and the next operation
    faults each page in again: that made decoding on CPUs 1.5 times slower.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.gnu_get_libc_version  # noqa: B018 - only glibc has it
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_TRIM_THRESHOLD, _TRIM_BYTES), (_M_TOP_PAD, _PAD_BYTES), (_M_MMAP_MAX, 0))
    agreed = [mallopt(option, value) for option, value in settings]  # all, whatever one says
    return all(agreed)


def device_kind(device: torch.device) -> str:
    """Name of the GPU model, or `VIRTUAL_KIND`."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return VIRTUAL_KIND


def memory_bytes(device: torch.device) -> int:
    """Memory of the device, bytes; for a CPU that of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def allocated_bytes(device: torch.device, weights_bytes: int) -> int:
    """Memory this process uses on `device`; on a CPU only the weights are known."""
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else weights_bytes


def freeing_memory(device: torch.device, compute: Callable[[], _Result]) -> _Result:
    """Result of `compute`; where it runs out of GPU memory, an error that holds on to none.

    The original's traceback refers to all that was being computed, so it is left behind. A
    context manager could not do that: its exception would carry the original as its context.

    Raises
    ------
    torch.OutOfMemoryError
        With the original's message.
    """
    try:
        return compute()
    except torch.OutOfMemoryError as error:
        message = str(error)
    release_memory(device)
    raise torch.OutOfMemoryError(message)


def release_memory(device: torch.device) -> None:
    """Free what nothing refers to any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what this thread gave it."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
