"""Errors that say what is wrong need no traceback: in Dask's log, and above Dask's wrappings."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

from distributed.comm import CommClosedError

from elastic_dit.errors import ClusterError, ElasticDitError

__all__ = ["hide_known_tracebacks", "muted_logs", "root_cause", "start_error"]

_LOGGERS = ("distributed", "tornado", "asyncio")


def root_cause(error: BaseException) -> BaseException:
    """What an exception was raised from, at the bottom.

    >>> try:
    ...     try:
    ...         raise KeyError("a")
    ...     except KeyError as error:
    ...         raise RuntimeError("Nanny failed to start.") from error
    ... except RuntimeError as error:
    ...     root_cause(error)
    KeyError('a')
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def start_error(worker: str, error: BaseException) -> ElasticDitError:
    """Why a worker did not start, in one line.

    >>> print(start_error("local-0", OSError("no such device")))
    worker local-0 did not start: OSError: no such device
    """
    root = root_cause(error)
    kind = "" if isinstance(root, ElasticDitError) else f"{type(root).__name__}: "
    return ClusterError(f"worker {worker} did not start: {kind}{root}")


class _KnownErrors(logging.Filter):
    """Puts an error of ours, and a connection that was closed, into the log as its text."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        known = _known(error) if error is not None else None
        if known is not None:
            said, text = record.getMessage(), str(known)
            record.msg = said if text in said else f"{said}: {text}"
            record.args = ()
            record.exc_info = record.exc_text = None
        return True


def _known(error: BaseException) -> BaseException | None:
    """What to tell of an error that needs no traceback."""
    root = root_cause(error)
    if isinstance(root, ElasticDitError):
        return root
    # The other side is gone or going, as at every end of a cluster: Dask's own log says so too.
    return error if isinstance(error, CommClosedError) else None


def hide_known_tracebacks() -> None:
    """From here on this process's Dask logs such errors without tracebacks."""
    for name in _LOGGERS:
        for handler in logging.getLogger(name).handlers:
            if not any(isinstance(known, _KnownErrors) for known in handler.filters):
                handler.addFilter(_KnownErrors())


@contextlib.contextmanager
def muted_logs() -> Iterator[None]:
    """Within it nothing is logged: for an end whose reason everybody knows."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
        gc.collect()  # asyncio complains of a task's unseen failure when the task is collected
    finally:
        logging.disable(before)
