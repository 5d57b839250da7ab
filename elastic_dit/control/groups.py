"""Groups: which GPUs run which stage of which request, fenced by attempt and epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elastic_dit.control.gpus import GpuPool
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["Fence", "Group", "GroupState", "GroupTable", "largest_block"]

Fence = tuple[str, int, int]
"""Request id, attempt, epoch: what a message must carry to be obeyed."""


class GroupState(StrEnum):
    """What a group has been told to do."""

    RUNNING = "running"
    RESIZING = "resizing"
    PREEMPTING = "preempting"
    ABORTING = "aborting"


@dataclass(slots=True, eq=False, kw_only=True)
class Group:
    """GPUs at work on one stage of one request.

    Attributes
    ----------
    request_id, attempt, epoch
        The fence. `epoch` is the one last seen at work.
    key : StageKey
    gpus : tuple of int
        GPUs at work, ascending; the first is the master.
    started_at : float
        When the stage was started here, seconds on the control plane's clock.
    total_steps : int
        Denoising steps of the request.
    step : int
        Steps done, those before a snapshot included.
    step_at : float
        When `step` was reached.
    step_s : float or None
        Duration of the last step, seconds; None before the first one ends.
    segment_at : float
        Since when `gpus` is as it is.
    state : GroupState
    held : set of int
        Every GPU that is busy for this group: those at work, those that are to join, those that
        have been told to leave and have not said that they have.
    target : tuple of int
        With RESIZING, the GPUs of the coming group.
    target_epoch : int
        With RESIZING, its epoch.
    broken : bool
        Whether it lost a member and stands still until the rest is told to go on.
    inputs : tuple of ArtifactRef
        What it was started with.
    first_epoch : int
        The epoch it was started with.
    stage : Stage
        The stage it runs.
    """

    request_id: str
    attempt: int
    epoch: int
    key: StageKey
    gpus: tuple[GpuId, ...]
    started_at: float
    total_steps: int
    step: int = 0
    step_at: float = 0.0
    step_s: float | None = None
    segment_at: float = 0.0
    state: GroupState = GroupState.RUNNING
    held: set[GpuId] = field(default_factory=set)
    target: tuple[GpuId, ...] = ()
    target_epoch: int = 0
    broken: bool = False
    inputs: tuple[ArtifactRef, ...] = ()
    first_epoch: int = 0
    stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        self.stage = self.key.stage

    def __repr__(self) -> str:
        gpus = ",".join(map(str, self.gpus))
        return (
            f"<Group {self.request_id} {self.stage} on {gpus} {self.state}"
            f" attempt {self.attempt} epoch {self.epoch} step {self.step}/{self.total_steps}>"
        )

    @property
    def master(self) -> GpuId:
        """The member that keeps the latents."""
        return self.gpus[0]

    @property
    def dop(self) -> int:
        """Degree of parallelism: GPUs at work."""
        return len(self.gpus)

    @property
    def newest_epoch(self) -> int:
        """The epoch of the newest command sent to it."""
        return max(self.epoch, self.target_epoch)

    def fences(self) -> Iterator[Fence]:
        """The fences under which its messages are obeyed."""
        yield (self.request_id, self.attempt, self.epoch)
        if self.target_epoch > self.epoch:
            yield (self.request_id, self.attempt, self.target_epoch)


class GroupTable:
    """All groups, found by fence and by request; the one place that takes and frees GPUs.

    A message whose fence is not here is stale or a duplicate: there is nothing else to compare.
    """

    def __init__(self, pool: GpuPool) -> None:
        self._pool = pool
        self._by_fence: dict[Fence, Group] = {}
        self._working: dict[Stage, dict[str, Group]] = {stage: {} for stage in Stage}
        self._epoch = 0

    def __repr__(self) -> str:
        return f"<GroupTable {len(self._by_fence)} fences>"

    def __iter__(self) -> Iterator[Group]:
        seen: set[int] = set()
        for group in self._by_fence.values():
            if id(group) not in seen:
                seen.add(id(group))
                yield group

    def working(self, stage: Stage) -> Collection[Group]:
        """Groups at work on a stage, those being aborted excluded, the longest there first."""
        return self._working[stage].values()

    def find(self, request_id: str, attempt: int, epoch: int) -> Group | None:
        """The group a message speaks of, None for a stale one."""
        return self._by_fence.get((request_id, attempt, epoch))

    def next_epoch(self) -> int:
        """A number no group has had: fences stay unique even where a request id comes again."""
        self._epoch += 1
        return self._epoch

    def open(self, group: Group) -> None:
        """Register a new group and take its GPUs."""
        group.held = set(group.gpus)
        group.first_epoch = group.epoch
        self._working[group.stage][group.request_id] = group
        group.segment_at = group.step_at = group.started_at
        self._register(group)
        for gpu in group.gpus:
            self._pool.take(gpu, group, group.started_at)

    def retarget(self, group: Group, gpus: Sequence[GpuId], epoch: int, now: float) -> None:
        """Note a resize that has been ordered, and take the joiners."""
        for fence in group.fences():
            if fence[2] != group.epoch:
                del self._by_fence[fence]
        group.state = GroupState.RESIZING
        group.target = tuple(gpus)
        group.target_epoch = epoch
        self._by_fence[(group.request_id, group.attempt, epoch)] = group
        for gpu in gpus:
            if gpu not in group.held:
                group.held.add(gpu)
                self._pool.take(gpu, group, now)

    def confirm(self, group: Group, now: float) -> None:
        """The group works as its last resize ordered; older messages of it are stale from here.

        GPUs that leave stay busy until they say that they are free.
        """
        del self._by_fence[(group.request_id, group.attempt, group.epoch)]
        group.epoch = group.target_epoch
        group.gpus = group.target
        group.target = ()
        group.broken = False
        group.segment_at = now
        group.step_s = None  # the next step carries the change
        if group.state is GroupState.RESIZING:
            group.state = GroupState.RUNNING
        self.touch(group)

    def drop_target(self, group: Group, now: float) -> None:
        """A resize will not be done; nobody waits any more to join."""
        if group.target_epoch > group.epoch:
            del self._by_fence[(group.request_id, group.attempt, group.target_epoch)]
        group.target, group.target_epoch = (), 0
        group.state = GroupState.RUNNING
        if group.broken:
            group.broken, group.segment_at = False, now
        self.touch(group)

    def touch(self, group: Group) -> None:
        """Note for policies that a group's state changed; its GPUs tell of themselves."""
        for gpu in group.gpus:
            if gpu in self._pool:
                self._pool.touch(self._pool[gpu].node)

    def wind_down(self, group: Group) -> None:
        """The group has been told to stop: nothing useful will come of it."""
        group.state = GroupState.ABORTING
        self._stop_working(group)

    def split_joiners(self, group: Group) -> Group | None:
        """Part those off that were to join a group which ended before they could.

        They become a group of their own that only winds down.
        """
        if group.target_epoch <= group.epoch:
            return None
        joiners = tuple(sorted(group.held.intersection(group.target).difference(group.gpus)))
        if not joiners:
            return None
        rest = Group(
            request_id=group.request_id,
            attempt=group.attempt,
            epoch=group.target_epoch,
            key=group.key,
            gpus=joiners,
            started_at=group.started_at,
            total_steps=group.total_steps,
            step_at=group.step_at,
            state=GroupState.ABORTING,
            held=set(joiners),
        )
        del self._by_fence[(group.request_id, group.attempt, group.target_epoch)]
        group.held -= rest.held
        group.target, group.target_epoch = (), 0
        self._register(rest)
        for gpu in joiners:
            self._pool.hand_over(gpu, rest)
        return rest

    def free(self, group: Group, gpus: Iterable[GpuId], now: float) -> None:
        """Give some GPUs back; a group with none left is closed."""
        for gpu in gpus:
            if gpu in group.held:
                group.held.remove(gpu)
                self._pool.give_back(gpu, now)
        group.gpus = tuple(filter(group.held.__contains__, group.gpus))
        if not group.held:
            self._unregister(group)

    def close(self, group: Group, now: float) -> None:
        """The group ended: all its GPUs are free."""
        self.free(group, tuple(group.held), now)

    def _register(self, group: Group) -> None:
        for fence in group.fences():
            self._by_fence[fence] = group

    def _stop_working(self, group: Group) -> None:
        working = self._working[group.stage]
        if working.get(group.request_id) is group:
            del working[group.request_id]

    def _unregister(self, group: Group) -> None:
        self._stop_working(group)
        for fence in group.fences():
            del self._by_fence[fence]


def largest_block(gpus: Iterable[GpuId]) -> tuple[GpuId, ...]:
    """The largest aligned power-of-two block of neighbours among `gpus`, the lowest if several.

    Process groups exist for such blocks only, so it is what can carry on after a member died.

    >>> largest_block([0, 2, 3])
    (2, 3)
    >>> largest_block([1, 3])
    (1,)
    """
    members = set(gpus)
    size = 1 << max(0, len(members).bit_length() - 1)
    while size > 1:
        for first in sorted(gpu for gpu in members if gpu % size == 0):
            block = tuple(range(first, first + size))
            if members.issuperset(block):
                return block
        size //= 2
    return (min(members),)
