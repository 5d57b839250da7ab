"""A client's way to its Dask scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import distributed

from elastic_dit.errors import ClusterError, ConfigError, SchedulerUnreachable

__all__ = [
    "CONNECTION_ERRORS",
    "DaskClient",
    "address_in",
    "connection_error",
    "has_default_client",
]

CONNECTION_ERRORS = (OSError, TimeoutError, ValueError, TypeError, RuntimeError)
"""What Dask raises where a connection fails, whatever the reason."""
_UNENCRYPTED = "encryption required"
"""How Dask begins to refuse an address without TLS to those who demand it."""


class DaskClient(distributed.Client):  # type: ignore[misc]
    """A Dask client of which a failed start leaves nothing: Dask keeps its event loop's thread."""

    def start(self, **kwargs: Any) -> None:
        """As Dask's, but clean up after a failure."""
        try:
            super().start(**kwargs)
        except BaseException:
            self.close()
            if not self.asynchronous:
                self._loop_runner.stop()
            raise


def address_in(scheduler_file: Path) -> str:
    """The address in a scheduler file; not left to Dask, which waits for a missing one for ever.

    Raises
    ------
    SchedulerUnreachable
    """
    try:
        return str(json.loads(scheduler_file.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SchedulerUnreachable(
            f"no Dask scheduler's address in {scheduler_file}: {type(error).__name__}: {error}"
        ) from None


def connection_error(
    address: str, error: BaseException, limit_s: float
) -> ClusterError | ConfigError:
    """What a failed connection means: nothing there, or nothing that could be.

    >>> print(connection_error("tcp://h:1", TimeoutError(), 2.0))
    no Dask scheduler answers at tcp://h:1 within 2 s
    >>> print(connection_error("h", ValueError("missing port"), 2.0))
    scheduler = 'h': must be an address like tcp://host:8786 (missing port)
    """
    if isinstance(error, TypeError):  # of Dask's TLS connector, where it has no certificates
        return ConfigError("security", None, f"certificates, for {address} is TLS")
    if isinstance(error, RuntimeError) and str(error).startswith(_UNENCRYPTED):
        return ConfigError("scheduler", address, "a tls:// address, for there are certificates")
    if isinstance(error, RuntimeError):
        return ClusterError(f"{address}: {error}")
    if isinstance(error, ValueError):
        return ConfigError("scheduler", address, f"an address like tcp://host:8786 ({error})")
    cause = f" ({error})" if str(error) else ""  # a TimeoutError says nothing
    return SchedulerUnreachable(
        f"no Dask scheduler answers at {address} within {limit_s:g} s{cause}"
    )


def has_default_client() -> bool:
    """Whether this process has a Dask client that its user made the default."""
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True
