"""A payload as bytes: what travels between engines, and the digest that says it arrived whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from elastic_dit.engine import payload as wire
from elastic_dit.engine.protocol import Payload

__all__ = ["Encoded"]


class Encoded(NamedTuple):
    """A payload in the engines' wire format, `elastic_dit.engine.payload`.

    Attributes
    ----------
    header : bytes
        Structure, types and shapes.
    frames : sequence of buffers
        The bytes of the tensors, one buffer each, without a copy where they lie in host memory.

    Examples
    --------
    >>> import numpy as np
    >>> encoded = Encoded.of({"latents": np.zeros(4, np.float32)})
    >>> encoded.nbytes, len(encoded.digest())
    (16, 32)
    >>> encoded.payload()["latents"].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """

    header: bytes
    frames: Sequence[Any]

    @classmethod
    def of(cls, payload: Payload) -> Self:
        """Encode a payload.

        Raises
        ------
        TransferError
            Where it holds what cannot travel.
        """
        return cls(*wire.pack(payload))

    @property
    def nbytes(self) -> int:
        """Bytes of the frames."""
        return sum(memoryview(frame).nbytes for frame in self.frames)

    def digest(self) -> str:
        """Checksum over header and frames."""
        return wire.digest(self.header, self.frames)

    def payload(self) -> Payload:
        """Decode; tensors are on the CPU and may share the frames' memory.

        Raises
        ------
        TransferError
            Where the bytes are not what `of` made.
        """
        decoded: Payload = wire.unpack(self.header, self.frames)
        return decoded
