"""A copy of the cluster's state in a few records: for placement policies, status and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from pydantic import TypeAdapter

from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["ClusterSnapshot", "GpuSnapshot", "QueueSnapshot"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The queue of one stage of one model.

    Attributes
    ----------
    key : StageKey
    waiting : int
        Requests in it.
    running : int
        Groups at work on the stage.
    oldest_wait_s : float
        Seconds the first in line has waited.
    """

    key: StageKey
    waiting: int
    running: int
    oldest_wait_s: float


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
        By model and stage.
    live, waiting, completed, failed, cancelled : int
        Requests.

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
