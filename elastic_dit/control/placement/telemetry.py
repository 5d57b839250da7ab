"""Telemetry of a running cluster, for `elastic-dit train-predictor --telemetry`."""

from __future__ import annotations

from elastic_dit.control.placement.assign import usable
from elastic_dit.control.placement.demand import arrivals_since, gpus_by_kind, workload_of
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.predict.examples import Example, Situation
from elastic_dit.predict.recorder import Recorder
from elastic_dit.predict.split import Split
from elastic_dit.request import Stage

__all__ = ["Telemetry", "split_in_force"]


class Telemetry:
    """Makes examples of the snapshots that placement is decided on.

    `elastic_dit.cluster.plane.telemetry.TelemetryKeeper` writes those of a running cluster.

    Parameters
    ----------
    window_s : float
        Seconds of one example; the split must stay the same for as long.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._recorder = Recorder(window_s)

    def __repr__(self) -> str:
        return f"Telemetry({self._recorder!r})"

    def look(self, snapshot: ClusterSnapshot) -> Example | None:
        """Look once; an example at the end of each stretch in which nothing moved."""
        arrivals = arrivals_since(snapshot, snapshot.at - self._window_s)
        workload = workload_of(snapshot, arrivals)
        situation = None if workload is None else Situation(workload, gpus_by_kind(snapshot))
        split = split_in_force(snapshot)
        return self._recorder.look(snapshot.at, situation, split, snapshot.completed, snapshot.live)


def split_in_force(snapshot: ClusterSnapshot) -> Split | None:
    """Which kinds of GPU hold which stage; None while one moves, or any holds several.

    Parameters
    ----------
    snapshot : ClusterSnapshot
    """
    kinds: dict[Stage, list[str]] = {stage: [] for stage in Stage}
    for gpu in usable(snapshot):
        stages = {key.stage for key in gpu.resident}
        if len(stages) != 1 or not gpu.is_settled:
            return None
        kinds[stages.pop()].append(gpu.kind)
    return Split(tuple(tuple(sorted(held)) for held in kinds.values()))
