"""Errors as plain data, for remote calls that may refuse.

Dask would pickle an exception; plain data is readable in any release and runs no code.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec

from elastic_dit import errors
from elastic_dit.errors import ClusterError, ElasticDitError

__all__ = ["pack_error", "raise_refusal", "refusals_as_data", "unpack_error"]

logger = logging.getLogger(__name__)

P = ParamSpec("P")

REFUSED = "refused"
"""Key of a reply that stands for an error."""


def pack_error(error: ElasticDitError) -> dict[str, Any]:
    """Plain form of an error.

    >>> pack_error(errors.UnknownModel("model", "x", "one of shapes"))
    {'type': 'UnknownModel', 'arguments': ['model', 'x', 'one of shapes']}
    """
    return {"type": type(error).__name__, "arguments": [_plain(value) for value in error.args]}


def unpack_error(wire: Mapping[str, Any]) -> ElasticDitError:
    """Inverse of `pack_error`; an unknown class becomes a `ClusterError`.

    >>> unpack_error({"type": "UnknownModel", "arguments": ["model", "x", "one of shapes"]})
    UnknownModel('model', 'x', 'one of shapes')
    >>> unpack_error({"type": "SystemExit", "arguments": [1]})
    ClusterError('SystemExit: 1')
    """
    name, arguments = wire["type"], wire["arguments"]
    kind = getattr(errors, name) if name in errors.__all__ else None
    if kind is not None:
        with contextlib.suppress(TypeError):  # another release's constructor
            return kind(*arguments)  # type: ignore[no-any-return]
    return ClusterError(f"{name}: {', '.join(map(str, arguments))}")


def raise_refusal(reply: Mapping[str, Any]) -> None:
    """Raise the error that a reply stands for, if it does."""
    if REFUSED in reply:
        raise unpack_error(reply[REFUSED])


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return repr(value)


def refusals_as_data(
    handler: Callable[P, Awaitable[dict[str, Any]]],
) -> Callable[P, Coroutine[Any, Any, dict[str, Any]]]:
    """Decorate a remote call: our errors become replies, others are logged and told as such."""

    @functools.wraps(handler)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        try:
            return await handler(*args, **kwargs)
        except ElasticDitError as error:
            return {REFUSED: pack_error(error)}
        except Exception as error:
            logger.exception("%s failed", handler.__name__)
            internal = ClusterError(f"internal error in {handler.__name__}: {error!r}")
            return {REFUSED: pack_error(internal)}

    return answer
