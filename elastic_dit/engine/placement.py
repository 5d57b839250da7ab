"""Where the tensors of a payload lie: on the host to travel, on the device to compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import torch

from elastic_dit.engine.payload import map_tensors

__all__ = ["placed", "to_device", "to_host", "to_places"]


def to_device(payload: Any, device: torch.device) -> Any:
    """Payload with every tensor on `device`; arrays stay."""
    return map_tensors(lambda t: t.to(device) if isinstance(t, torch.Tensor) else t, payload)


def to_host(payload: Any) -> Any:
    """Payload with every tensor in host memory."""
    return to_device(payload, torch.device("cpu"))


def placed(payload: Any) -> list[int]:
    """Which tensors, counted in order, lie on an accelerator.

    A sampler keeps some of its tensors on the CPU on purpose; a snapshot that has travelled
    through host memory must put each back where it was.
    """
    found: list[int] = []

    def note(index: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            found.append(index)
        return tensor

    _visit(payload, note)
    return found


def to_places(payload: Any, indices: Iterable[int], device: torch.device) -> Any:
    """Inverse of `to_host`: move the tensors that `placed` found to `device`."""
    wanted = frozenset(indices)
    moved: dict[int, torch.Tensor] = {}

    def move(index: int, tensor: torch.Tensor) -> torch.Tensor:
        if index not in wanted:
            return tensor
        return moved.setdefault(id(tensor), tensor.to(device))

    return _visit(payload, move) if wanted else payload


def _visit(payload: Any, function: Callable[[int, torch.Tensor], torch.Tensor]) -> Any:
    serial = count()

    def visit(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: visit(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([visit(item) for item in value])
        return function(next(serial), value) if isinstance(value, torch.Tensor) else value

    return visit(payload)
