"""A copy of the cluster's state in a few records: for placement policies, status and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from pydantic import TypeAdapter

from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = [
    "ArrivalSnapshot",
    "ClusterSnapshot",
    "GpuSnapshot",
    "QueueSnapshot",
    "ShapeSnapshot",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSnapshot:
    """One GPU at one moment.

    Attributes
    ----------
    gpu : int
    name, node, kind : str
    memory_bytes : int
    resident, loading, draining : tuple of StageKey
        Stages it holds; is loading; and holds but takes no new work for.
    wanted : tuple of StageKey
        What the plan in force wants there.
    failed : dict of str to str
        ``model/stage`` that could not be loaded there, with the reason.
    retiring : bool
    request_id : str or None
        What it works for.
    stage : Stage or None
        The stage it runs.
    aborting : bool
        Whether that work has been called off.
    busy_s, alive_s : float
        Seconds it has worked, and been there.
    utilisation : float
        Part of the latest `ClusterSnapshot.window_s` that it has worked.
    remaining_s : float or None
        Seconds until its present work ends, as far as that can be told; 0 without any.
    """

    gpu: GpuId
    name: str
    node: str
    kind: str
    memory_bytes: int
    resident: tuple[StageKey, ...] = ()
    loading: tuple[StageKey, ...] = ()
    draining: tuple[StageKey, ...] = ()
    wanted: tuple[StageKey, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    retiring: bool = False
    request_id: str | None = None
    stage: Stage | None = None
    aborting: bool = False
    busy_s: float = 0.0
    alive_s: float = 0.0
    utilisation: float = 0.0
    remaining_s: float | None = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether it holds what is wanted of it, as far as it can, and nothing else."""
        missing = {key for key in self.wanted if f"{key.model}/{key.stage}" not in self.failed}
        return not self.loading and not self.draining and missing == set(self.resident)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """One stage of one model: who waits for it, and how those fare that serve it.

    Attributes
    ----------
    key : StageKey
    waiting : int
        Requests in its queue.
    running : int
        Groups at work on the stage.
    oldest_wait_s : float
        Seconds the first in line has waited.
    serving : int
        GPUs that take work for it, busy or not.
    utilisation : float
        Mean of theirs, whatever they worked on.
    delay_s : float
        Mean wait of those that were started within the window, and of the first in line.
    delay_growth : float
        Seconds by which that wait grows each second (least squares over the window).
    load_s : float or None
        What its last load took; None where none was seen.
    weights_bytes : int or None
        Its weights; None where that is not known.
    """

    key: StageKey
    waiting: int
    running: int
    oldest_wait_s: float
    serving: int = 0
    utilisation: float = 0.0
    delay_s: float = 0.0
    delay_growth: float = 0.0
    load_s: float | None = None
    weights_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSnapshot:
    """Requests of one model, size and number of steps, and what one of them takes.

    Attributes
    ----------
    model : str
    width, height, num_frames, num_inference_steps : int
    seconds : dict of str to dict of Stage to float
        By GPU kind, seconds of each whole stage at DoP 1, all steps of the DiT included; a stage
        whose time is not known is missing.
    activation_bytes : dict of Stage to int
        Memory at work beside the weights; a stage whose needs are not known is missing.
    """

    model: str
    width: int
    height: int
    num_frames: int
    num_inference_steps: int
    seconds: dict[str, dict[Stage, float]] = field(default_factory=dict)
    activation_bytes: dict[Stage, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArrivalSnapshot:
    """One request that came lately.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    shape : int
        Index into `ClusterSnapshot.shapes`.
    """

    at: float
    shape: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The cluster at one moment; plain data that travels as JSON or msgpack.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    plan_epoch : int
        Epoch of the placement plan in force.
    plan_reason : str
        And its reason.
    gpus : tuple of GpuSnapshot
        By number.
    queues : tuple of QueueSnapshot
        Every stage that is wanted, held, waited for or worked on, by model and stage.
    live, waiting, completed, failed, cancelled : int
        Requests.
    accepted : int
        Requests that ever came.
    window_s : float
        Length of the window that utilisation and delays refer to, seconds.
    arrivals : tuple of ArrivalSnapshot
        Latest arrivals, the oldest first.
    shapes : tuple of ShapeSnapshot
        Their shapes, each once.

    Examples
    --------
    >>> snapshot = ClusterSnapshot(at=1.0, plan_epoch=0, plan_reason="")
    >>> ClusterSnapshot.from_wire(snapshot.to_wire()) == snapshot
    True
    """

    at: float
    plan_epoch: int
    plan_reason: str
    gpus: tuple[GpuSnapshot, ...] = ()
    queues: tuple[QueueSnapshot, ...] = ()
    live: int = 0
    waiting: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    accepted: int = 0
    window_s: float = 0.0
    arrivals: tuple[ArrivalSnapshot, ...] = ()
    shapes: tuple[ShapeSnapshot, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Plain msgpack-able form."""
        wire: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return wire

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        """Inverse of `to_wire`."""
        snapshot: Self = _adapter().validate_python(wire)
        return snapshot


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(ClusterSnapshot)
