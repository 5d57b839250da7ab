"""Outputs of stages, kept on the engine that made them until the control plane releases them."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.engine.protocol import Payload
from elastic_dit.errors import ArtifactGone
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["Artifact", "Made", "Outbox"]

_SERIAL_BITS = 48


@dataclass(frozen=True, slots=True)
class Made:
    """Something a stage left behind, ready to be sent.

    Attributes
    ----------
    payload : Payload
    encoded : Encoded
    digest : str
    """

    payload: Payload
    encoded: Encoded
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One stage output in both its forms.

    Attributes
    ----------
    ref : ArtifactRef
        What the rest of the cluster knows of it.
    payload : Payload
        For a consumer on this engine: by reference, on the device.
    encoded : Encoded
        For a consumer elsewhere; on a CPU its frames are views of the payload's tensors.
    """

    ref: ArtifactRef
    payload: Payload
    encoded: Encoded


class Outbox:
    """Artifacts by reference.

    It is bounded by the control plane, which releases what is no longer needed; nothing is ever
    dropped silently, since a consumer may be on its way.

    Notes
    -----
    Not thread-safe: used from the event loop only.
    """

    def __init__(self) -> None:
        self._held: dict[ArtifactRef, Artifact] = {}
        # Not from 0: another process of this GPU, after this one has died, must not repeat them.
        self._serials = itertools.count(secrets.randbits(_SERIAL_BITS))

    def __repr__(self) -> str:
        return f"<Outbox {len(self)} artifacts, {self.nbytes} bytes>"

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[ArtifactRef]:
        return iter(self._held)

    @property
    def nbytes(self) -> int:
        """Bytes of all artifacts held."""
        return sum(ref.nbytes for ref in self._held)

    def keep(
        self, made: Made, *, request_id: str, attempt: int, stage: Stage, gpu: GpuId, step: int = 0
    ) -> ArtifactRef:
        """Keep what a stage made until its release; what the rest of the cluster knows of it."""
        ref = ArtifactRef(
            request_id=request_id,
            attempt=attempt,
            stage=stage,
            gpu=gpu,
            nbytes=made.encoded.nbytes,
            digest=made.digest,
            step=step,
            serial=next(self._serials),
        )
        self.put(Artifact(ref=ref, payload=made.payload, encoded=made.encoded))
        return ref

    def put(self, artifact: Artifact) -> None:
        """Keep an artifact until its release."""
        self._held[artifact.ref] = artifact

    def get(self, ref: ArtifactRef) -> Artifact:
        """The artifact of that reference.

        Raises
        ------
        ArtifactGone
            Where it was released, or made by an earlier life of this engine.
        """
        try:
            return self._held[ref]
        except KeyError:
            raise ArtifactGone(
                f"request {ref.request_id}: engine {ref.gpu} no longer holds the output of its "
                f"{ref.stage} stage (attempt {ref.attempt})"
            ) from None

    def release(self, ref: ArtifactRef) -> None:
        """Forget an artifact; forgetting twice is fine."""
        self._held.pop(ref, None)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
