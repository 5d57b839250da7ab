"""The desk behind which the cluster lies: what the HTTP API asks of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import StageKey
from elastic_dit.results import Image, Video

__all__ = ["JobDesk", "Readiness"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the cluster can serve now.

    Attributes
    ----------
    gpus : int
        Engines that have joined.
    served : tuple of str
        Models of which every stage is resident somewhere.
    missing : tuple of StageKey
        Stages of the other models that no GPU holds.
    """

    gpus: int
    served: tuple[str, ...]
    missing: tuple[StageKey, ...]

    @property
    def is_ready(self) -> bool:
        """Whether some model can be served."""
        return bool(self.served)


class JobDesk(Protocol):
    """What the HTTP API asks of a cluster.

    All jobs live in the cluster: several front ends over one see the same. Every call but
    `watch` and `result`, which end with the job or when their caller goes, is bounded and raises
    `elastic_dit.errors.ClusterError` where the cluster does not answer.
    """

    async def models(self) -> tuple[ModelCard, ...]:
        """Cards of the models served, the default first."""
        ...

    async def submit(self, options: Mapping[str, Any], owner: str) -> RequestStatus:
        """Take a job in, or join the one with its ``request_id`` and body.

        Parameters
        ----------
        options : mapping
            Fields of `GenerationRequest`, ``request_id`` and ``prompt`` at least.
        owner : str
            For whom, as the job will tell.

        Raises
        ------
        InvalidRequest, RequestConflict, AdmissionRefused, NotReady
            As `elastic_dit.Client.submit`.
        """
        ...

    async def status_of(self, job_id: str) -> RequestStatus:
        """How a job stands.

        Raises
        ------
        UnknownRequest
        """
        ...

    async def requests(
        self, limit: int, after: str | None, *, newest_first: bool, owner: str
    ) -> list[RequestStatus]:
        """Jobs of an owner in order of acceptance, at most `limit` after the job `after`.

        Raises
        ------
        UnknownRequest
            Where there is no job `after`.
        """
        ...

    def watch(self, job_id: str) -> AsyncIterator[RequestStatus]:
        """The job now, then after each change, until it is over.

        Raises
        ------
        UnknownRequest
        """
        ...

    async def result(self, job_id: str) -> Video | Image:
        """What a job made; waits while it lives.

        Raises
        ------
        UnknownRequest, ResultGone, GenerationFailed, GenerationCancelled
        """
        ...

    async def cancel(self, job_id: str, reason: str) -> RequestStatus:
        """Stop a job for everybody; one that is over stays as it is.

        Raises
        ------
        UnknownRequest
        """
        ...

    async def forget(self, job_id: str) -> None:
        """Stop a job and forget it with its result.

        Raises
        ------
        UnknownRequest
        """
        ...

    async def readiness(self) -> Readiness:
        """Whether anything can be served now."""
        ...

    async def readings(self) -> Readings:
        """The cluster's metrics."""
        ...

    async def close(self) -> None:
        """Let the cluster go."""
        ...
