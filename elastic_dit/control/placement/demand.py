"""What the latest arrivals ask for: the workload that placement is decided on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.packing import Demand, StageNeed
from elastic_dit.control.snapshot import ArrivalSnapshot, ClusterSnapshot, ShapeSnapshot
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.request import Stage, StageKey

__all__ = ["arrivals_since", "gpus_by_kind", "packing_demand", "usual_kind", "workload_of"]


def gpus_by_kind(snapshot: ClusterSnapshot) -> dict[str, int]:
    """GPUs that are not about to leave, by kind."""
    return dict(Counter(gpu.kind for gpu in snapshot.gpus if not gpu.retiring))


def usual_kind(snapshot: ClusterSnapshot) -> str:
    """The kind of most GPUs, the first by name of several; empty without any GPU."""
    kinds = gpus_by_kind(snapshot)
    return min(kinds, key=lambda kind: (-kinds[kind], kind), default="")


def arrivals_since(snapshot: ClusterSnapshot, since: float) -> Sequence[ArrivalSnapshot]:
    """Arrivals from a moment on, the oldest first."""
    return [arrival for arrival in snapshot.arrivals if arrival.at >= since]


def workload_of(snapshot: ClusterSnapshot, arrivals: Sequence[ArrivalSnapshot]) -> Workload | None:
    """The workload that some arrivals show, on the usual kind of GPU.

    Shapes whose times are not known count for the rate only.

    Parameters
    ----------
    snapshot : ClusterSnapshot
    arrivals : sequence of ArrivalSnapshot
        Some of its own.

    Returns
    -------
    Workload or None
        None where there are none, or the times of none of them are known.
    """
    kind = usual_kind(snapshot)
    counts = Counter(arrival.shape for arrival in arrivals)
    known = {
        index: shape.seconds[kind]
        for index, shape in enumerate(snapshot.shapes)
        if counts[index] and len(shape.seconds.get(kind, {})) == len(Stage)
    }
    parts = [
        _part(snapshot.shapes[index], counts[index], seconds) for index, seconds in known.items()
    ]
    if not any(seconds > 0 for part in parts for seconds in part.seconds.values()):
        return None
    span_s = max(snapshot.at - arrivals[0].at, 1e-3)
    weights = {queue.key.stage: queue.weights_bytes for queue in snapshot.queues}
    return Workload.of_mix(
        len(arrivals) / span_s,
        parts,
        stage_bytes={stage: nbytes for stage, nbytes in weights.items() if nbytes is not None},
        speeds=_speeds([snapshot.shapes[index] for index in known], kind),
    )


def _part(shape: ShapeSnapshot, count: int, seconds: Mapping[Stage, float]) -> MixPart:
    return MixPart(
        share=count,
        seconds=seconds,
        width=shape.width,
        height=shape.height,
        num_frames=shape.num_frames,
        num_inference_steps=shape.num_inference_steps,
    )


def _speeds(shapes: Sequence[ShapeSnapshot], usual: str) -> dict[str, float]:
    """How fast each kind of GPU is at whole requests, compared with the usual kind."""
    speeds = {}
    for kind in {kind for shape in shapes for kind in shape.seconds}:
        both = [shape for shape in shapes if len(shape.seconds.get(kind, {})) == len(Stage)]
        theirs = sum(sum(shape.seconds[kind].values()) for shape in both)
        usual_s = sum(sum(shape.seconds[usual].values()) for shape in both)
        if theirs > 0 and usual_s > 0:
            speeds[kind] = usual_s / theirs
    return speeds


def packing_demand(
    snapshot: ClusterSnapshot, models: Sequence[str], since: float, config: PlacementConfig
) -> Demand | None:
    """What the requests since a moment ask of each stage of each model.

    A model that none of them was for still needs a place for each stage.

    Returns
    -------
    Demand or None
        None where the times of no such request are known.
    """
    counts = Counter(arrival.shape for arrival in arrivals_since(snapshot, since))
    shapes = [(snapshot.shapes[index], count) for index, count in counts.items()]
    total = sum(counts.values())
    queues = {queue.key: queue for queue in snapshot.queues}
    needs = {}
    for key in (StageKey(model, stage) for model in models for stage in Stage):
        ours = [(shape, count) for shape, count in shapes if shape.model == key.model]
        queue = queues.get(key)
        needs[key] = StageNeed(
            seconds=_mean_seconds(ours, key.stage),
            share=sum(count for _, count in ours) / total if total else 0.0,
            load_s=(queue.load_s or 0.0) if queue else 0.0,
            weights_bytes=queue.weights_bytes if queue else None,
            activation_bytes=_most_activation(ours, key.stage),
        )
    if not any(need.seconds for need in needs.values()):
        return None
    return Demand(needs=needs, earn_back_s=config.earn_back_s, reserve=config.memory_reserve)


def _mean_seconds(shapes: Sequence[tuple[ShapeSnapshot, int]], stage: Stage) -> dict[str, float]:
    """Mean time of one request for a stage, by GPU kind; kinds for which none is known left out."""
    means = {}
    for kind in {kind for shape, _ in shapes for kind in shape.seconds}:
        known = [
            (shape.seconds[kind][stage], count)
            for shape, count in shapes
            if stage in shape.seconds.get(kind, {})
        ]
        whole = sum(count for _, count in known)
        mean = sum(seconds * count for seconds, count in known) / whole if whole else 0.0
        if mean > 0:
            means[kind] = mean
    return means


def _most_activation(shapes: Sequence[tuple[ShapeSnapshot, int]], stage: Stage) -> int | None:
    known = [
        shape.activation_bytes[stage] for shape, _ in shapes if stage in shape.activation_bytes
    ]
    return max(known) if known and len(known) == len(shapes) else None
