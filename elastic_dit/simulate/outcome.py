"""What a simulated run gave: one record per request, and figures over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_dit.request import Stage
from elastic_dit.simulate.timeline import Span, chrome_trace, utilisation
from elastic_dit.state import GpuId, Phase, StageRecord

__all__ = ["RequestOutcome", "SimulationResult", "percentile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """How one request fared.

    Attributes
    ----------
    request_id, label : str
        And the name of its class.
    arrived_at : float
        Virtual seconds.
    ended_at : float or None
        None for one that had not ended when the run was stopped.
    phase : Phase
        Its last one.
    attempts : int
    deadline_s : float or None
        Wanted within, seconds after arrival.
    records : tuple of StageRecord
        Its timeline.
    error : str
        Why it failed or was cancelled.
    """

    request_id: str
    label: str = ""
    arrived_at: float
    ended_at: float | None = None
    phase: Phase
    attempts: int = 1
    deadline_s: float | None = None
    records: tuple[StageRecord, ...] = ()
    error: str = ""

    @property
    def latency_s(self) -> float | None:
        """Seconds from arrival to the end, None without one."""
        return None if self.ended_at is None else self.ended_at - self.arrived_at

    @property
    def met_deadline(self) -> bool:
        """Whether it was completed in time; one without a deadline only has to complete."""
        if self.phase is not Phase.COMPLETED or self.latency_s is None:
            return False
        return self.deadline_s is None or self.latency_s <= self.deadline_s

    @property
    def gpu_s(self) -> float:
        """GPU-seconds spent on it."""
        return sum(record.seconds * len(record.gpus) for record in self.records)

    def stage_s(self, stage: Stage) -> float:
        """Seconds it was worked on in a stage."""
        return sum(record.seconds for record in self.records if record.stage is stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """A finished run.

    Attributes
    ----------
    requests : tuple of RequestOutcome
        In order of arrival.
    spans : tuple of Span
        What every GPU did.
    nodes : dict of int to str
        Machine of every GPU there ever was.
    alive_s : dict of int to float
        Seconds each was there.
    ended_at : float
        Virtual seconds.
    num_events : int
        Events the controller handled.
    """

    requests: tuple[RequestOutcome, ...]
    spans: tuple[Span, ...] = ()
    nodes: Mapping[GpuId, str] = field(default_factory=dict)
    alive_s: Mapping[GpuId, float] = field(default_factory=dict)
    ended_at: float = 0.0
    num_events: int = 0

    def latencies_s(self, where: Callable[[RequestOutcome], bool] = lambda _: True) -> list[float]:
        """Latencies of completed requests, sorted."""
        return sorted(
            outcome.latency_s
            for outcome in self.requests
            if outcome.phase is Phase.COMPLETED and outcome.latency_s is not None and where(outcome)
        )

    def attainment(self, where: Callable[[RequestOutcome], bool] = lambda _: True) -> float:
        """Part of the submitted requests that met their deadline; 1 of none."""
        chosen = [outcome for outcome in self.requests if where(outcome)]
        return sum(outcome.met_deadline for outcome in chosen) / len(chosen) if chosen else 1.0

    @property
    def gpu_seconds(self) -> float:
        """Cumulative occupancy of all GPUs by stages (DDiT eq. 2)."""
        return sum(span.seconds for span in self.spans if span.what not in ("load", "drop"))

    def summary(self) -> dict[str, Any]:
        """Figures of the whole run, as plain data."""
        latencies = self.latencies_s()
        used = utilisation(self.spans, self.alive_s)
        return {
            "submitted": len(self.requests),
            "completed": len(latencies),
            "failed": sum(outcome.phase is Phase.FAILED for outcome in self.requests),
            "cancelled": sum(outcome.phase is Phase.CANCELLED for outcome in self.requests),
            "mean_s": sum(latencies) / len(latencies) if latencies else None,
            **{f"p{p}_s": percentile(latencies, p) for p in (50, 90, 95, 99)},
            "attainment": self.attainment(),
            "makespan_s": self.ended_at,
            "gpu_seconds": self.gpu_seconds,
            "utilisation": sum(used.values()) / len(used) if used else 0.0,
        }

    def chrome_trace(self) -> dict[str, Any]:
        """Trace for Chrome or Perfetto; see `elastic_dit.simulate.timeline.chrome_trace`."""
        return chrome_trace(self.spans, self.nodes)


def percentile(values: Sequence[float] | Iterable[float], p: float) -> float | None:
    """The p-th percentile, interpolated linearly at (n - 1) p / 100; None of nothing.

    >>> percentile([1.0, 2.0, 4.0], 75)
    3.0
    """
    ordered = sorted(values)
    if not ordered:
        return None
    at = (len(ordered) - 1) * p / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
