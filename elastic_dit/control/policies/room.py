"""What `elastic` does with GPUs: starts, promotions in place or by a move, what is under way."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from elastic_dit.control import actions
from elastic_dit.control.block import Block
from elastic_dit.control.groups import GroupState
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.policies.space import Space
from elastic_dit.control.view import ClusterView, GroupView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["Room"]

_MOVES_AT_ONCE = 8
"""Groups that are on their way to other GPUs at most: every decision looks at them all."""
_CHANGES_AT_ONCE = 64
"""Groups told to give GPUs up that have not done so at most: every decision looks at them all."""


class Room:
    """Moves and shrinkages that have been ordered and are not done yet."""

    def __init__(self) -> None:
        self._moves: dict[str, Block] = {}
        self._reserved: frozenset[GpuId] = frozenset()
        self._leaving: dict[str, GroupView] = {}
        self._spaces: dict[StageKey, tuple[object, Space]] = {}

    def __repr__(self) -> str:
        return f"<Room: {len(self._moves)} moves, {len(self._leaving)} give GPUs up>"

    @property
    def may_take_back(self) -> bool:
        """Whether more groups may be told to give GPUs up."""
        return len(self._leaving) < _CHANGES_AT_ONCE

    def leaving(self, but_of: Collection[str] = ()) -> int:
        """GPUs that groups have been told to give up and still hold.

        Parameters
        ----------
        but_of : collection of str
            Requests whose groups are not counted.
        """
        return sum(
            len(set(group.gpus).difference(group.target))
            for request_id, group in self._leaving.items()
            if request_id not in but_of
        )

    # ------------------------------------------------------------------------- actions
    def start(self, view: ClusterView, job: Job, cap: int) -> Iterator[actions.Start]:
        """Start what a request waits for, on up to `cap` GPUs."""
        key = job.record.key
        encodes = key.stage is Stage.ENCODER
        if not view.free(key) or (encodes and not view.has_room_after(key)):
            return
        space = self._space(view, key)
        if job.record.avoid:
            others = Space(view, key, self._reserved | job.record.avoid)
            space = others if others.largest else space
        size = min(1 if encodes else cap, space.largest)
        block = space.block(size) if size else None
        if block is not None:
            yield actions.Start(job.request_id, block.gpus, f"DoP {size} of {cap}")

    def grow(self, view: ClusterView, job: Job, cap: int) -> Iterator[actions.Action]:
        """Promote towards `cap`: in place, else by moving to a free block."""
        group = job.group
        here = Block.of(group.gpus) if group else None
        if here is None or not view.free(job.key):
            return
        space = self._space(view, job.key)
        size = cap
        while size > here.size:
            wider = space.around(here, size)
            if wider is not None:
                yield actions.Resize(job.request_id, wider.gpus, f"promoted to DoP {size}")
                return
            elsewhere = space.block(size) if len(self._moves) < _MOVES_AT_ONCE else None
            if elsewhere is not None:
                self._set_move(job.request_id, elsewhere)
                yield self.preempt(job, f"moves to GPUs that allow DoP {size}")
                return
            size //= 2

    def shrink(self, job: Job, dop: int, reason: str) -> actions.Resize:
        """Leave a group `dop` of its GPUs."""
        group = job.group
        assert group is not None, job
        self._leaving[job.request_id] = group
        return actions.Resize(job.request_id, group.gpus[:dop], reason)

    def preempt(self, job: Job, reason: str) -> actions.Preempt:
        """Take all of a group's GPUs."""
        group = job.group
        assert group is not None, job
        self._leaving[job.request_id] = group
        return actions.Preempt(job.request_id, reason)

    def _space(self, view: ClusterView, key: StageKey) -> Space:
        """What is free and not reserved; made anew only where that changed."""
        state = (view.version, self._reserved)
        made_at, space = self._spaces.get(key, (None, None))
        if space is None or made_at != state:
            space = Space(view, key, self._reserved)
            self._spaces[key] = (state, space)
        return space

    # ------------------------------------------------------------------------ under way
    def settle(self, view: ClusterView) -> Iterator[actions.Start]:
        """Start those that left their GPUs for better ones; forget what is done or void."""
        for request_id, group in tuple(self._leaving.items()):
            record = view.requests.get(request_id)
            leaves = group.state in (GroupState.RESIZING, GroupState.PREEMPTING)
            if record is None or record.group is not group or not leaves:
                del self._leaving[request_id]
        for request_id, block in tuple(self._moves.items()):
            record = view.requests.get(request_id)
            group_now = record.group if record is not None else None
            if group_now is not None and group_now.state is GroupState.PREEMPTING:
                continue
            self._set_move(request_id, None)
            waits = record is not None and record.phase.is_waiting and record.stage is Stage.DIT
            if record is not None and waits and view.are_free(record.key, block.gpus):
                yield actions.Start(request_id, block.gpus, f"moved, DoP {block.size}")

    def _set_move(self, request_id: str, block: Block | None) -> None:
        if block is None:
            del self._moves[request_id]
        else:
            self._moves[request_id] = block
        self._reserved = frozenset(gpu for b in self._moves.values() for gpu in b.gpus)
