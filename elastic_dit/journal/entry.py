"""One request as the journal has it, and the changes that make up its life."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import Failure, Phase, StageRecord

__all__ = ["Accepted", "Change", "Ended", "Entry", "Forgotten", "Started"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is written down of one request.

    Attributes
    ----------
    request : GenerationRequest
        Its picture is whole in what `Journal.begin_life` gives, and only mentioned elsewhere.
    accepted_at : float
        Wall-clock time, seconds since the epoch.
    dops : tuple of int
        Degrees of parallelism at which its engines can run it; empty for no limit.
    owner : str
        On whose behalf it runs.
    attempts : int
        The newest attempt that began; 0 while it was only queued.
    stage : Stage or None
        The newest stage that began.
    restarts : int
        How often the cluster went down while it ran.
    phase : Phase
        ``queued`` until it ended: where a live one stands is not written down.
    finished_at : float or None
        When it ended, seconds since the epoch.
    records : tuple of StageRecord
        Stages that ran, of one that has completed.
    failure : Failure or None
        Why it failed.
    reason : str
        Why it was cancelled.
    has_result : bool
        Whether its result was kept.
    damage : str
        What of it cannot be read any more, so that it cannot run; empty where all can.
    """

    request: GenerationRequest
    accepted_at: float
    dops: tuple[int, ...] = ()
    owner: str = ""
    attempts: int = 0
    stage: Stage | None = None
    restarts: int = 0
    phase: Phase = Phase.QUEUED
    finished_at: float | None = None
    records: tuple[StageRecord, ...] = ()
    failure: Failure | None = None
    reason: str = ""
    has_result: bool = False
    damage: str = ""

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    def __repr__(self) -> str:
        return f"<Entry {self.request_id} {self.phase}, {self.attempts} attempts>"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request was accepted; under an id that is there already it begins anew."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Started:
    """A stage began."""

    request_id: str
    attempt: int
    stage: Stage

    def of(self, entry: Entry) -> Entry:
        """The entry after it."""
        return replace(entry, attempts=self.attempt, stage=self.stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request ended; fields as in `Entry`."""

    request_id: str
    phase: Phase
    finished_at: float
    attempts: int
    records: tuple[StageRecord, ...] = ()
    failure: Failure | None = None
    reason: str = ""
    has_result: bool = False

    def of(self, entry: Entry) -> Entry:
        """The entry after it."""
        return replace(
            entry,
            request=entry.request.without_image_data(),
            phase=self.phase,
            finished_at=self.finished_at,
            attempts=self.attempts,
            records=self.records,
            failure=self.failure,
            reason=self.reason,
            has_result=self.has_result,
        )


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A request's time to live is over."""

    request_id: str


Change = Accepted | Started | Ended | Forgotten
