"""A session: one request's denoising, step by step, stoppable and movable after any step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Session", "Snapshot"]

Snapshot = Mapping[str, Any]
"""A session's state as a payload (see `elastic_dit.engine.payload`): never modules or code."""


class Session(Protocol):
    """Life: `begin` or `restore`, `step` while ``step_index < total_steps``, `finish`, `close`.

    A session owns its sampler, guider and random generator and shares only the model's weights,
    so sessions of one model may be interleaved step by step. Results do not depend on where,
    when or after which snapshots the steps ran.
    """

    @property
    def step_index(self) -> int:
        """Denoising steps done."""
        ...

    @property
    def total_steps(self) -> int:
        """Denoising steps to do in all."""
        ...

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Start from the encoder's payload."""
        ...

    def step(self) -> None:
        """Do one denoising step."""
        ...

    def snapshot(self) -> Snapshot:
        """State after the last step.

        It shares tensors with the session: encode it, or do not go on with this session.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of any session of the same request and model."""
        ...

    def finish(self) -> dict[str, Any]:
        """Payload for the decoder; after the last step."""
        ...

    def close(self) -> None:
        """Let go of everything, at any point of life."""
        ...
