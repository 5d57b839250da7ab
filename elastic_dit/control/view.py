"""What dispatch policies see: the controller's own records, read only, nothing copied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from elastic_dit.config import ControlConfig
from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import GroupState, GroupTable
from elastic_dit.control.requests import RequestTable
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, GpuId, Phase, StageRecord

__all__ = [
    "ClusterView",
    "GpuView",
    "GroupView",
    "QueueView",
    "RequestView",
    "StageTimes",
]


class StageTimes(Protocol):
    """How long stages take: the hook for a cost model."""

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """Seconds of a whole stage, or of *one step* for `Stage.DIT`; None where unknown.

        Parameters
        ----------
        request : GenerationRequest
        stage : Stage
        dop : int
            GPUs of the group.
        kind : str
            GPU kind.
        """
        ...


class GroupView(Protocol):
    """A group at work; attributes as in `elastic_dit.control.groups.Group`."""

    @property
    def request_id(self) -> str: ...
    @property
    def key(self) -> StageKey: ...
    @property
    def stage(self) -> Stage: ...
    @property
    def gpus(self) -> tuple[GpuId, ...]: ...
    @property
    def held(self) -> AbstractSet[GpuId]: ...
    @property
    def target(self) -> tuple[GpuId, ...]: ...
    @property
    def master(self) -> GpuId: ...
    @property
    def dop(self) -> int: ...
    @property
    def state(self) -> GroupState: ...
    @property
    def started_at(self) -> float: ...
    @property
    def segment_at(self) -> float: ...
    @property
    def step(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def step_at(self) -> float: ...
    @property
    def step_s(self) -> float | None: ...


class RequestView(Protocol):
    """A request; attributes as in `elastic_dit.control.requests.RequestRecord`."""

    @property
    def request_id(self) -> str: ...
    @property
    def request(self) -> GenerationRequest: ...
    @property
    def sequence(self) -> int: ...
    @property
    def accepted_at(self) -> float: ...
    @property
    def waiting_since(self) -> float: ...
    @property
    def in_line(self) -> bool: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def stage(self) -> Stage: ...
    @property
    def key(self) -> StageKey: ...
    @property
    def attempt(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def steps_left(self) -> int: ...
    @property
    def rank(self) -> tuple[object, ...]: ...
    @property
    def inputs(self) -> tuple[ArtifactRef, ...]: ...
    @property
    def dops(self) -> tuple[int, ...]: ...
    @property
    def group(self) -> GroupView | None: ...
    @property
    def prepared(self) -> GpuId | None: ...
    @property
    def avoid(self) -> AbstractSet[GpuId]: ...
    @property
    def records(self) -> Sequence[StageRecord]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...


class QueueView(Protocol):
    """Requests waiting for one stage of one model, in the policy's order."""

    @property
    def head(self) -> RequestView | None: ...
    @property
    def next_unprepared(self) -> RequestView | None: ...
    @property
    def weight(self) -> float: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RequestView]: ...


class GpuView(Protocol):
    """A GPU; attributes as in `elastic_dit.control.gpus.Gpu`."""

    @property
    def gpu(self) -> GpuId: ...
    @property
    def name(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def resident(self) -> AbstractSet[StageKey]: ...
    @property
    def loading(self) -> AbstractSet[StageKey]: ...
    @property
    def draining(self) -> AbstractSet[StageKey]: ...
    @property
    def failed(self) -> Mapping[StageKey, str]: ...
    @property
    def retiring(self) -> bool: ...
    @property
    def group(self) -> GroupView | None: ...
    @property
    def ending(self) -> bool: ...
    @property
    def is_idle(self) -> bool: ...
    def serves(self, key: StageKey) -> bool: ...


class ClusterView:
    """The state that policies plan on.

    It is live: an action takes effect before the policy is asked for the next one, so a policy
    written as a generator sees what it has already decided. Everything costs O(1) or O(log n),
    iteration aside.

    Parameters
    ----------
    table, pool, groups
        The controller's records.
    times : StageTimes
        What stages cost.
    config : ControlConfig
        Limits.
    """

    def __init__(
        self,
        table: RequestTable,
        pool: GpuPool,
        groups: GroupTable,
        times: StageTimes,
        config: ControlConfig,
    ) -> None:
        self._table = table
        self._pool = pool
        self._groups = groups
        self.times = times
        self.config = config

    def __repr__(self) -> str:
        return f"<ClusterView {self._table!r} {self._pool!r}>"

    # ------------------------------------------------------------------------------- requests
    @property
    def requests(self) -> Mapping[str, RequestView]:
        """Requests that have not ended, in order of acceptance."""
        return self._table.live

    @property
    def waiting(self) -> int:
        """Requests that wait for a GPU, over all stages."""
        return self._table.waiting

    def queue(self, key: StageKey) -> QueueView | None:
        """Who waits for a stage of a model; None where nobody ever did."""
        return self._table.queues.get(key)

    def queues(self, stage: Stage) -> Sequence[tuple[StageKey, QueueView]]:
        """The queues of a stage that are not empty, one per model."""
        return [line for line in self._table.lines[stage] if line[1].ranks]

    def has_room_after(self, key: StageKey) -> bool:
        """Whether what a stage would make can wait before the next one."""
        following = key.stage.following
        if following is None:
            return True
        after = StageKey(key.model, following)
        queue = self._table.queues.get(after)
        if queue is None:
            return True
        return len(queue) < self.config.ready_per_gpu * max(1, len(self._pool.serving(after)))

    def running(self, stage: Stage) -> Collection[GroupView]:
        """Groups at work on a stage, the longest there first; not those being aborted."""
        return self._groups.working(stage)

    # -------------------------------------------------------------------------------- changes
    @property
    def version(self) -> tuple[int, int]:
        """Differs whenever queues, groups or free GPUs do; steps and time alone leave it."""
        return (self._table.version, self._pool.version)

    def touched(self, since: tuple[int, int]) -> Iterator[str]:
        """Machines whose GPUs or groups changed after a version, the latest first."""
        return self._pool.touched(since[1])

    @property
    def widest(self) -> int | None:
        """Largest group that can form at present; None for no limit."""
        widest: int | None = getattr(self.times, "widest", None)
        return widest

    def allowed_dop(self, request: RequestView, most: int) -> int:
        """The largest degree of parallelism up to `most` at which a request can run at present."""
        if self.widest is not None:
            most = min(most, self.widest)
        most = max(1, most)
        if request.dops:
            return max((dop for dop in request.dops if dop <= most), default=1)
        return 1 << most.bit_length() - 1

    @property
    def learns_times(self) -> bool:
        """Whether `times` are observed ones, which change."""
        learns: bool = getattr(self.times, "learns", True)
        return learns

    @property
    def shapes_seen(self) -> int:
        """Grows when `times` learns of something that it did not know before."""
        seen: int = getattr(self.times, "shapes", 0)
        return seen

    # ----------------------------------------------------------------------------------- GPUs
    @property
    def gpus(self) -> Iterable[GpuView]:
        """All live GPUs."""
        return self._pool

    @property
    def num_gpus(self) -> int:
        """Live GPUs."""
        return len(self._pool)

    def gpu(self, gpu: GpuId) -> GpuView | None:
        """One GPU, None if it is not alive."""
        return self._pool.get(gpu)

    @property
    def nodes(self) -> AbstractSet[str]:
        """Machines with a live GPU."""
        return self._pool.nodes

    def node(self, name: str) -> AbstractSet[GpuId]:
        """Live GPUs of one machine."""
        return self._pool.node(name)

    def free(self, key: StageKey) -> Sequence[GpuId]:
        """GPUs that can start a stage now, ascending."""
        return self._pool.free(key)

    def blocks(self, key: StageKey) -> BuddyAllocator:
        """The free GPUs of a stage as aligned blocks inside nodes; to be looked at only."""
        return self._pool.blocks(key, self.config.slots_per_node)

    def groups_on(self, node: str, stage: Stage) -> Iterator[GroupView]:
        """Groups at work on a stage with their master on a machine, by GPU."""
        for gpu in sorted(self._pool.node(node)):
            group = self._pool[gpu].group
            if group is None or group.state is GroupState.ABORTING:
                continue
            if group.stage is stage and group.gpus[:1] == (gpu,):
                yield group

    def is_free(self, key: StageKey, gpu: GpuId) -> bool:
        """Whether a GPU can start a stage now."""
        return self._pool.are_free(key, (gpu,))

    def are_free(self, key: StageKey, gpus: Iterable[GpuId]) -> bool:
        """Whether all of these GPUs can start a stage now."""
        return self._pool.are_free(key, gpus)

    def serving(self, key: StageKey) -> AbstractSet[GpuId]:
        """GPUs that take work for a stage, busy or not."""
        return self._pool.serving(key)

    def serving_version(self, key: StageKey) -> int:
        """Grows whenever other GPUs take work for a stage than before."""
        return self._pool.serving_version(key)

    def widest_machine(self, key: StageKey) -> int:
        """GPUs that take work for a stage on the machine that has most of them, busy or not."""
        return self._pool.widest(key, self.config.slots_per_node)

    def prefetch_slots(self, key: StageKey) -> AbstractSet[GpuId]:
        """Busy GPUs soon to be free for a stage that may pull inputs ahead, first to end first."""
        return self._pool.prefetch_slots(key)
