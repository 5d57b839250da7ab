"""Leave a running model between two of its blocks when its request was cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from elastic_dit.engine.protocol import Boundary, StageStopped

__all__ = ["AbortGuard", "Abortable"]


class Abortable(Protocol):
    """The part of a stage's or group's context that is asked in the midst of a model."""

    def aborted(self) -> bool:
        """Whether to give up."""
        ...


class AbortGuard:
    """Asks the context before each block of the watched models.

    A block is a member of one of the model's outermost module lists, such as a transformer's
    layer: what takes milliseconds to run. A VAE that decodes one latent frame at a time thus
    stops within a frame. A check costs some microseconds, so single operations are not guarded.

    Parameters
    ----------
    models : iterable of torch.nn.Module
    """

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        self._models = tuple(models)
        self._context: Abortable | None = None
        blocks = {id(b): b for model in self._models for b in _blocks(model)}
        self._hooks = [b.register_forward_pre_hook(self._look) for b in blocks.values()]

    def __repr__(self) -> str:
        return f"<AbortGuard of {len(self._hooks)} blocks>"

    @contextmanager
    def watching(self, context: Abortable) -> Iterator[None]:
        """While inside, a model raises `StageStopped` once ``context.aborted()``.

        Whatever leaves the models half-way also clears the caches they keep between blocks.
        """
        self._context = context
        try:
            yield
        except BaseException:
            for model in self._models:
                if clear := getattr(model, "clear_cache", None):
                    clear()
            raise
        finally:
            self._context = None

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _look(self, *_: Any) -> None:
        if self._context is not None and self._context.aborted():
            raise StageStopped(Boundary.ABORT)


def _blocks(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Members of the module lists that lie in no other list."""
    for child in model.children():
        yield from child if isinstance(child, torch.nn.ModuleList) else _blocks(child)
