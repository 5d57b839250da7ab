"""Errors that say what is wrong need no traceback: in Dask's log, and above Dask's wrappings."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

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
    """Puts an error of ours into the log as its text."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        root = root_cause(error) if error is not None else None
        if isinstance(root, ElasticDitError):
            said, text = record.getMessage(), str(root)
            record.msg = said if text in said else f"{said}: {text}"
            record.args = ()
            record.exc_info = record.exc_text = None
        return True


def hide_known_tracebacks() -> None:
    """From here on this process's Dask logs errors of ours without tracebacks."""
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
