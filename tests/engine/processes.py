"""Run a function in another process; only packed payloads go there and back."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

from elastic_dit.engine.payload import pack, unpack

__all__ = ["elsewhere"]

DEADLINE_S = 90.0


def elsewhere(function: Callable[..., Any], *payloads: Any) -> Any:
    """``function(*payloads)`` in a forked process, as the payload it returns."""
    context = multiprocessing.get_context("fork")  # children share the import of torch
    ours, theirs = context.Pipe()
    packed = [_frozen(payload) for payload in payloads]
    child = context.Process(target=_child, args=(theirs, function, packed), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(DEADLINE_S), "the other process gave no answer in time"
        ok, answer = ours.recv()
    finally:
        child.join(DEADLINE_S)
    assert ok, answer
    return unpack(*answer)


def _frozen(payload: Any) -> tuple[bytes, list[bytes]]:
    header, frames = pack(payload)
    return header, [bytes(frame) for frame in frames]


def _child(pipe: Any, function: Callable[..., Any], packed: list[Any]) -> None:
    import torch

    torch.manual_seed(987654)  # a state of the global generator unlike the parent's
    try:
        pipe.send((True, _frozen(function(*(unpack(*each) for each in packed)))))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
