"""DDiT's greedy scheduling (paper §4.2.3, Algorithm 2): take what is free, promote the hungry.

A request starts at its optimal DoP `B`, or at what is free below that. One that runs below its
`B` is *hungry*: whenever GPUs come free it is promoted before anybody waiting starts, the one
with the longest starvation time (eq. 5) first. Blocks come from a buddy system (§5); the decode
runs on the master, and the other GPUs are free as soon as the denoising ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elastic_dit.control import actions
from elastic_dit.control.block import Block
from elastic_dit.control.dispatch import first_come, first_in_line, prefetches, register_dispatch
from elastic_dit.control.groups import GroupState
from elastic_dit.control.policies.shape_times import ShapeBook
from elastic_dit.control.policies.space import Space
from elastic_dit.control.view import ClusterView, GroupView, RequestView
from elastic_dit.request import Stage

__all__ = ["DditGreedy"]

_ROWS_KEPT = 64
"""Rows of the promote table beyond two per group at work from which on it is tidied up."""


@dataclass(slots=True)
class _Hungry:
    """Row of the promote table: `r_starv` and `r_last_step` of eq. 5."""

    starvation_s: float = 0.0
    last_step: int = 0


class DditGreedy:
    """The policy.

    Parameters
    ----------
    promote : bool
        Whether hungry requests are promoted; without, a request keeps the DoP it started at.
    """

    watches_steps = False
    watches_clock = False

    def __init__(self, *, promote: bool = True) -> None:
        self._promote = promote
        self._hungry: dict[str, _Hungry] = {}
        self._looked = (0, 0)
        self._shapes = ShapeBook()

    def __repr__(self) -> str:
        return f"DditGreedy(promote={self._promote})"

    def order(self, request: RequestView) -> tuple[object, ...]:  # noqa: ARG002
        """Order of acceptance."""
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Lines 6 to 20 of Algorithm 2, after the decodes that free their masters."""
        self._shapes.begin(view, now)
        yield from first_come(view, Stage.DECODER)
        if self._promote:
            yield from self._promotions(view)
        yield from self._starts(view)
        yield from first_come(view, Stage.ENCODER)
        yield from prefetches(view)

    def _promotions(self, view: ClusterView) -> Iterator[actions.Action]:
        """Lines 7 to 13, where something changed: elsewhere nobody can who could not before."""
        rows = []
        for group in self._changed(view):
            if not view.free(group.key):
                continue
            request = view.requests[group.request_id]
            times = self._shapes.times(request, view)
            optimal = times.optimal(view.config.slots_per_node)
            if group.dop < optimal and _can_grow(group):
                here_s = times.step_s.get(group.dop, times.step_s[1])
                lag_s = here_s - times.step_s[optimal]
                starvation_s = self._starve(request, group, lag_s)
                rows.append((-starvation_s, request.sequence, optimal, group))
        self._forget_those_done(view)
        for starvation, _, optimal, group in sorted(rows, key=lambda row: row[:2]):
            block = _widest(Space(view, group.key), group, optimal)
            if block is not None:
                reason = f"DoP {block.size} of {optimal}, starved {-starvation:.2f} s"
                yield actions.Resize(group.request_id, block.gpus, reason)

    def _changed(self, view: ClusterView) -> list[GroupView]:
        """Groups of the machines that changed since the last look."""
        nodes = list(view.touched(self._looked))
        self._looked = view.version
        return [group for node in nodes for group in view.groups_on(node, Stage.DIT)]

    def _forget_those_done(self, view: ClusterView) -> None:
        """Now and then, so that it costs nothing to speak of per event."""
        if len(self._hungry) <= 2 * len(view.running(Stage.DIT)) + _ROWS_KEPT:
            return
        for name in tuple(self._hungry):
            request = view.requests.get(name)
            if request is None or request.stage is not Stage.DIT:
                del self._hungry[name]

    def _starve(self, request: RequestView, group: GroupView, lag_s: float) -> float:
        """Bring a request's starvation time up to date (eq. 5): so much longer took each step."""
        first = _Hungry(last_step=request.step)
        row = self._hungry.setdefault(request.request_id, first)
        row.starvation_s += max(0, group.step - row.last_step) * lag_s
        row.last_step = group.step
        return row.starvation_s

    def _starts(self, view: ClusterView) -> Iterator[actions.Action]:
        """Lines 15 to 20: from `B` downwards, whatever is free."""
        while (request := first_in_line(view, Stage.DIT)) is not None:
            optimal = self._shapes.times(request, view).optimal(view.config.slots_per_node)
            space = Space(view, request.key)
            if request.avoid:
                others = Space(view, request.key, request.avoid)
                space = others if others.largest else space
            block = space.block(min(optimal, space.largest))
            assert block is not None, request
            yield actions.Start(request.request_id, block.gpus, f"DoP {block.size} of {optimal}")


def _widest(space: Space, group: GroupView, optimal: int) -> Block | None:
    """The largest block around a group, up to `optimal`, whose other GPUs are free."""
    here = Block.of(group.gpus)
    size = optimal
    while here is not None and size > here.size:
        block = space.around(here, size)
        if block is not None:
            return block
        size //= 2
    return None


def _can_grow(group: GroupView) -> bool:
    return group.state is GroupState.RUNNING and group.step < group.total_steps


register_dispatch("ddit", DditGreedy)
register_dispatch("ddit-no-promotion", lambda: DditGreedy(promote=False))
