"""Which GPU worked for whom, from when to when: the rows of the timeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from elastic_dit.control.controller import Controller
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["Lanes", "Mark", "Span"]

SPANS_KEPT = 4_000
"""Ended spans that stay: two minutes of 64 GPUs that each change work every two seconds."""
MARKS_KEPT = 400
"""Promotions and demotions that stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One GPU at work for one request without a change.

    Attributes
    ----------
    gpu : int
    request_id : str
    model : str
    stage : Stage
    dop : int
        GPUs at work on the request meanwhile.
    attempt : int
    start, end : float
        Seconds on the control plane's clock; `end` of one that goes on is infinite.
    """

    gpu: GpuId
    request_id: str
    model: str
    stage: Stage
    dop: int
    attempt: int
    start: float
    end: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A promotion or demotion.

    Attributes
    ----------
    at : float
        Seconds on the control plane's clock.
    gpu : int
        The master afterwards.
    request_id : str
    before, after : int
        Degree of parallelism.
    """

    at: float
    gpu: GpuId
    request_id: str
    before: int
    after: int


class Lanes:
    """Follows the GPUs of a controller; looks only at machines on which something changed.

    Attributes
    ----------
    marks : deque of Mark
        The last ones.
    ended : int
        Spans that ever ended.
    """

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=MARKS_KEPT)
        self.ended = 0
        self._spans: deque[Span] = deque(maxlen=SPANS_KEPT)
        self._open: dict[GpuId, Span] = {}
        self._held: dict[GpuId, tuple[Group, int]] = {}
        self._dops: dict[tuple[str, int], int] = {}
        self._seen = 0

    def __repr__(self) -> str:
        return f"<Lanes {len(self._open)} open, {self.ended} ended, {len(self.marks)} marks>"

    def spans_since(self, count: int) -> Iterator[Span]:
        """Those that ended after the first `count` did, as far as they are kept."""
        return islice(self._spans, max(0, len(self._spans) - (self.ended - count)), None)

    @property
    def open(self) -> Iterable[Span]:
        """Those that go on."""
        return self._open.values()

    def follow(self, controller: Controller, now: float) -> None:
        """Note what has changed since the last call."""
        pool = controller.pool
        if pool.version == self._seen:
            return
        for gpu in [gpu for gpu in self._open if gpu not in pool]:
            self._close(gpu, now)
        for node in pool.touched(self._seen):
            for gpu in pool.node(node):
                # Most GPUs of a machine are as they were: nothing but a look at each.
                group, held = pool[gpu].group, self._held.get(gpu)
                if group is None:
                    if held is not None:
                        self._close(gpu, now)
                elif held is None or held[0] is not group or held[1] != len(group.gpus):
                    self._turn(gpu, group, now)
        self._seen = pool.version

    def forget(self, pool: GpuPool, live: Iterable[Group], now: float) -> None:
        """Drop what is known of groups that are gone; spans stay."""
        names = {(group.request_id, group.first_epoch) for group in live}
        self._dops = {name: dop for name, dop in self._dops.items() if name in names}
        if pool.version < self._seen:  # another controller took over
            self._seen = 0
            for gpu in list(self._open):
                self._close(gpu, now)

    def _turn(self, gpu: GpuId, group: Group, now: float) -> None:
        """A GPU turns to other work, or to the same with other company."""
        was = self._open.get(gpu)
        goes_on = was is not None and _is_same(was, group)
        if was is not None and not goes_on:
            self._close(gpu, now)
        self._held[gpu] = (group, group.dop)
        if goes_on:
            return
        self._open[gpu] = Span(
            gpu=gpu,
            request_id=group.request_id,
            model=group.key.model,
            stage=group.stage,
            dop=group.dop,
            attempt=group.attempt,
            start=now,
        )
        if group.gpus[0] == gpu and group.stage is Stage.DIT:
            self._weigh(group, now)

    def _weigh(self, group: Group, now: float) -> None:
        name = (group.request_id, group.first_epoch)
        before = self._dops.get(name, group.dop)
        self._dops[name] = group.dop
        if before != group.dop:
            self.marks.append(
                Mark(
                    at=now,
                    gpu=group.master,
                    request_id=group.request_id,
                    before=before,
                    after=group.dop,
                )
            )

    def _close(self, gpu: GpuId, now: float) -> None:
        span = self._open.pop(gpu)
        del self._held[gpu]
        self.ended += 1
        self._spans.append(replace(span, end=now))


def _is_same(span: Span, group: Group) -> bool:
    return (span.request_id, span.stage, span.dop, span.attempt) == (
        group.request_id,
        group.stage,
        group.dop,
        group.attempt,
    )
