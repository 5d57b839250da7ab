"""Events and commands as msgpack-able dictionaries, for Dask's ordered streams.

Engine to control plane, op `EVENT_OP`: ``{"op", "event": encode(event)}``.
Control plane to engine, op `COMMAND_OP`: ``{"op", "command": encode(command), "addresses"}``,
where `addresses` maps the GPU ids named in the command to worker addresses.

Before that an engine introduces itself, ``{"op": HELLO_OP, "engine": {...}}``, and is answered
``{"op": WELCOME_OP, "gpu": number, "config": {...}}``. Dask closes a stream on an op it does not
know, so nothing is sent before the scheduler has a handler for `HELLO_OP`.

Client to control plane, op `FENCE_OP`: ``{"op", "token"}``, see `elastic_dit.cluster.fences`;
control plane to engine, the same with the request's id as ``client``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast, get_args

from pydantic import TypeAdapter

from elastic_dit.events import Command, Event

__all__ = [
    "COMMAND_OP",
    "EVENT_OP",
    "FENCE_OP",
    "GIVES_UP",
    "HELLO_OP",
    "WELCOME_OP",
    "decode_command",
    "decode_event",
    "encode",
]

HELLO_OP = "elastic-dit-hello"
WELCOME_OP = "elastic-dit-welcome"
EVENT_OP = "elastic-dit-event"
COMMAND_OP = "elastic-dit-command"
FENCE_OP = "elastic-dit-fence"

GIVES_UP = "elastic-dit-gives-up"
"""How the reason begins with which a worker closes whose device is no longer usable."""

_EVENTS = {kind.__name__: kind for kind in get_args(Event)}
_COMMANDS = {kind.__name__: kind for kind in get_args(Command)}


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(message: Event | Command) -> dict[str, Any]:
    """Plain form of an event or command.

    >>> from elastic_dit.events import EngineLost
    >>> encode(EngineLost(gpu=3, reason="killed"))
    {'type': 'EngineLost', 'gpu': 3, 'reason': 'killed', 'expected': False}
    """
    kind: type = type(message)
    return {"type": kind.__name__, **_adapter(kind).dump_python(message, mode="json")}


def decode_event(wire: dict[str, Any]) -> Event:
    """Inverse of `encode` for events.

    Raises
    ------
    KeyError
        Where the type is not an event.
    """
    return cast("Event", _decode(_EVENTS, wire))


def decode_command(wire: dict[str, Any]) -> Command:
    """Inverse of `encode` for commands."""
    return cast("Command", _decode(_COMMANDS, wire))


def _decode(kinds: dict[str, type], wire: dict[str, Any]) -> object:
    fields = {name: value for name, value in wire.items() if name != "type"}
    return _adapter(kinds[wire["type"]]).validate_python(fields)
