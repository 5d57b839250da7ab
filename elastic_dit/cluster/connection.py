"""A client's way to its Dask scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import distributed

from elastic_dit.errors import SchedulerUnreachable

__all__ = ["DaskClient", "address_in", "has_default_client"]


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


def has_default_client() -> bool:
    """Whether this process has a Dask client that its user made the default."""
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True
