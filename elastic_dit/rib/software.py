"""Which software a latency was measured with."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["software_version"]

_PACKAGES = ("torch", "diffusers", "elastic-dit")
"""What changes how long a stage takes: kernels, model code, our own."""


@cache
def software_version() -> str:
    """Names and versions of what runs a stage, such as ``torch 2.13.0, diffusers 0.42.1 …``.

    Read from the installed packages without importing them.
    """
    return ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
