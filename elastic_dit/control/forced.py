"""Requests that shall run at a given degree of parallelism: how a profile is measured.

They go through the same queues, groups and engines as any other, so what is measured is what
serving takes. Only the dispatch policy steps aside while one of them is live.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elastic_dit.control import actions
from elastic_dit.control.dispatch import STAGE_ORDER
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["ForcedDegrees"]

_PATIENCE_S = 60.0
"""Seconds after which a request that was announced and never came is forgotten, and after which
those that came and cannot be started, with nothing at work, become requests as any other."""


@dataclass(slots=True)
class _Wish:
    dop: int
    kind: str
    until: float
    came: bool = False


class ForcedDegrees:
    """Starts announced requests at their degree, once all others at work have ended.

    Other requests wait as long as one of these is live.

    Examples
    --------
    >>> forced = ForcedDegrees()
    >>> forced.announce("r1", dop=2, kind="virtual", now=0.0)
    >>> forced
    <ForcedDegrees r1 at 2>
    """

    def __init__(self) -> None:
        self._wishes: dict[str, _Wish] = {}
        self._stuck_since: float | None = None

    def __bool__(self) -> bool:
        """Whether any request is announced or live."""
        return bool(self._wishes)

    def __repr__(self) -> str:
        wishes = ", ".join(f"{name} at {wish.dop}" for name, wish in self._wishes.items())
        return f"<ForcedDegrees {wishes or 'none'}>"

    def announce(self, request_id: str, dop: int, kind: str, now: float) -> None:
        """Let a request that is about to come run on `dop` GPUs of a kind, and nowhere else."""
        self._wishes[request_id] = _Wish(dop, kind, now + _PATIENCE_S)

    def is_due(self, view: ClusterView, now: float) -> bool:
        """Whether such a request is live; those that have ended are forgotten."""
        if not self._wishes:
            return False
        for name, wish in tuple(self._wishes.items()):
            wish.came = wish.came or name in view.requests
            if name not in view.requests and (wish.came or now > wish.until):
                del self._wishes[name]
        if not any(wish.came for wish in self._wishes.values()):
            return False
        if self._is_stuck(view, now):
            self._wishes.clear()
        return bool(self._wishes)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Start]:  # noqa: ARG002
        """See `DispatchPolicy.plan`."""
        working = (group for stage in Stage for group in view.running(stage))
        if any(group.request_id not in self._wishes for group in working):
            return
        for stage in STAGE_ORDER:
            for _, queue in view.queues(stage):
                for request in [each for each in queue if each.request_id in self._wishes]:
                    wish = self._wishes[request.request_id]
                    gpus = _free(view, request, wish.dop if stage is Stage.DIT else 1, wish.kind)
                    if gpus:
                        self._stuck_since = None
                        yield actions.Start(request.request_id, gpus, f"measured at {len(gpus)}")

    def _is_stuck(self, view: ClusterView, now: float) -> bool:
        """Whether a GPU seems to be gone that is needed: the others shall not wait for ever."""
        if any(view.running(stage) for stage in Stage):
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is not None and now - self._stuck_since > _PATIENCE_S


def _free(view: ClusterView, request: RequestView, size: int, kind: str) -> tuple[GpuId, ...]:
    """The first free block of so many GPUs of a kind, where its inputs lie if it can be."""
    free = {gpu for gpu in view.free(request.key) if _kind(view, gpu) == kind}
    starts = sorted(gpu for gpu in free if gpu % size == 0)
    blocks = [tuple(range(first, first + size)) for first in starts]
    whole = [block for block in blocks if free.issuperset(block)]
    holders = {ref.gpu for ref in request.inputs}
    return next((block for block in whole if block[0] in holders), whole[0] if whole else ())


def _kind(view: ClusterView, gpu: GpuId) -> str | None:
    record = view.gpu(gpu)
    return None if record is None else record.kind
