"""GPUs: what each one is, holds and does, and which of them are free for a stage."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastic_dit.control.allocator import BuddyAllocator
from elastic_dit.control.stage_index import StageIndex
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

if TYPE_CHECKING:
    from elastic_dit.control.groups import Group

__all__ = ["Gpu", "GpuPool"]


@dataclass(slots=True, eq=False, kw_only=True)
class Gpu:
    """One GPU and the engine on it.

    Attributes
    ----------
    gpu : int
    name : str
        Name of its engine.
    node : str
        Machine it sits in.
    kind : str
        Hardware kind.
    memory_bytes : int
    joined_at : float
        Seconds on the control plane's clock.
    resident, loading, dropping, draining : set of StageKey
        Stages it holds; is loading; is freeing; and holds but takes no new work for.
    reasons : dict of StageKey to str
        Why the loads and drops under way were ordered.
    failed : dict of StageKey to str
        Stages that could not be loaded here, with the reason. They are not tried again.
    retiring : bool
        Its machine is to be given back: no new work at all.
    group : Group or None
        What it works for.
    ending : bool
        Whether that work is about to end.
    prepared : dict of str to None
        Requests whose inputs it was told to pull ahead.
    busy_since : float
        When `group` took it.
    busy_s : float
        Seconds it has worked, the present work excluded.
    worked : deque of (float, float)
        When it worked within the latest seconds, from and to, the present work excluded.
    """

    gpu: GpuId
    name: str
    node: str
    kind: str
    memory_bytes: int
    joined_at: float
    resident: set[StageKey] = field(default_factory=set)
    loading: set[StageKey] = field(default_factory=set)
    dropping: set[StageKey] = field(default_factory=set)
    draining: set[StageKey] = field(default_factory=set)
    reasons: dict[StageKey, str] = field(default_factory=dict)
    failed: dict[StageKey, str] = field(default_factory=dict)
    retiring: bool = False
    group: Group | None = None
    ending: bool = False
    prepared: dict[str, None] = field(default_factory=dict)
    busy_since: float = 0.0
    busy_s: float = 0.0
    worked: deque[tuple[float, float]] = field(default_factory=deque)

    def __repr__(self) -> str:
        stages = " ".join(sorted(f"{key.model}/{key.stage}" for key in self.resident))
        work = self.group.request_id if self.group else "idle"
        return f"<Gpu {self.gpu} {self.name} [{stages}] {work}>"

    @property
    def is_idle(self) -> bool:
        """Whether its engine's one thread has nothing to do: no work, no load, no drop."""
        return self.group is None and not self.loading and not self.dropping

    def serves(self, key: StageKey) -> bool:
        """Whether it takes new work for a stage, now or once it is idle."""
        return (
            key in self.resident
            and key not in self.draining
            and key not in self.dropping
            and not self.retiring
        )

    def busy_total_s(self, now: float) -> float:
        """Seconds it has worked until `now`."""
        return self.busy_s + (now - self.busy_since if self.group else 0.0)

    def utilisation(self, now: float, window_s: float) -> float:
        """Part of the latest seconds that it has worked, of those that it was there."""
        start = max(now - window_s, self.joined_at)
        busy_s = sum(max(0.0, until - max(since, start)) for since, until in self.worked)
        if self.group:
            busy_s += now - max(self.busy_since, start)
        return min(1.0, busy_s / (now - start)) if now > start else 0.0


class GpuPool:
    """All live GPUs, with the free ones of every stage kept sorted and, once asked for, in blocks.

    Every change of a GPU ends in `refresh`, which costs O(stages it holds x log GPUs).

    Parameters
    ----------
    prefetch_depth : int
        Requests whose inputs one GPU may pull ahead.
    window_s : float
        Seconds for which it is kept when each GPU worked.

    Attributes
    ----------
    version : int
        Grows with every change of what is free, takes work or is done by a group.
    """

    def __init__(self, prefetch_depth: int, window_s: float = 0.0) -> None:
        self._prefetch_depth = prefetch_depth
        self._window_s = window_s
        self._gpus: dict[GpuId, Gpu] = {}
        self._nodes: dict[str, set[GpuId]] = {}
        self._stages: dict[StageKey, StageIndex] = {}
        self._listed: dict[GpuId, dict[StageKey, StageIndex]] = {}
        self._touched: OrderedDict[str, int] = OrderedDict()
        self.version = 0
        self.when_freed: Callable[[Gpu], None] | None = None

    def __repr__(self) -> str:
        busy = sum(1 for gpu in self._gpus.values() if gpu.group)
        return f"<GpuPool {len(self._gpus)} GPUs, {busy} busy>"

    def __len__(self) -> int:
        return len(self._gpus)

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self._gpus.values())

    def __contains__(self, gpu: object) -> bool:
        return gpu in self._gpus

    def __getitem__(self, gpu: GpuId) -> Gpu:
        return self._gpus[gpu]

    def get(self, gpu: GpuId) -> Gpu | None:
        """The GPU of that number, None if there is none alive."""
        return self._gpus.get(gpu)

    def node(self, name: str) -> AbstractSet[GpuId]:
        """Live GPUs of a machine."""
        return self._nodes.get(name, set())

    @property
    def nodes(self) -> AbstractSet[str]:
        """Machines with at least one live GPU."""
        return self._nodes.keys()

    def free(self, key: StageKey) -> Sequence[GpuId]:
        """GPUs that can start a stage now, ascending."""
        index = self._stages.get(key)
        return index.free if index is not None else ()

    def are_free(self, key: StageKey, gpus: Iterable[GpuId]) -> bool:
        """Whether all of these GPUs can start a stage now."""
        index = self._stages.get(key)
        return index is not None and index.are_free(gpus)

    def blocks(self, key: StageKey, slots_per_node: int) -> BuddyAllocator:
        """The free GPUs of a stage as blocks inside nodes, kept from the first call on."""
        # The largest power of two that divides a node, so that no aligned block leaves it.
        return self._stages.setdefault(key, StageIndex()).blocks(slots_per_node & -slots_per_node)

    def touch(self, node: str) -> None:
        """Something about the GPUs of a machine, or their groups, changed."""
        self.version += 1
        self._touched[node] = self.version
        self._touched.move_to_end(node)

    def touched(self, since: int) -> Iterator[str]:
        """Machines that changed after a version, the latest first."""
        for node, version in reversed(self._touched.items()):
            if version <= since:
                return
            yield node

    def serving(self, key: StageKey) -> AbstractSet[GpuId]:
        """GPUs that take work for a stage, busy or not."""
        index = self._stages.get(key)
        return index.serving if index is not None else frozenset()

    def serving_version(self, key: StageKey) -> int:
        """Grows whenever other GPUs take work for a stage than before."""
        index = self._stages.get(key)
        return index.serving_version if index is not None else 0

    def widest(self, key: StageKey, slots_per_node: int) -> int:
        """GPUs that take work for a stage on the machine that has most of them, busy or not."""
        index = self._stages.get(key)
        return index.widest(slots_per_node) if index is not None else 0

    def prefetch_slots(self, key: StageKey) -> AbstractSet[GpuId]:
        """GPUs about to be free for a stage that may pull inputs ahead, first to end first."""
        index = self._stages.get(key)
        return index.slots.keys() if index is not None else frozenset()

    def add(self, gpu: Gpu) -> None:
        """A GPU joined."""
        self._gpus[gpu.gpu] = gpu
        self._listed[gpu.gpu] = {}
        self._nodes.setdefault(gpu.node, set()).add(gpu.gpu)
        self.refresh(gpu)

    def remove(self, gpu: GpuId) -> Gpu:
        """A GPU left; its group must have let it go before."""
        gone = self._gpus.pop(gpu)
        members = self._nodes[gone.node]
        members.discard(gpu)
        if not members:
            del self._nodes[gone.node]
        for index in self._listed.pop(gpu).values():
            index.update(gpu, False, False, False)
        self.touch(gone.node)
        if not members:
            del self._touched[gone.node]
        return gone

    def take(self, gpu: GpuId, group: Group, now: float) -> None:
        """A group takes a GPU that is idle."""
        record = self._gpus[gpu]
        assert record.is_idle, record
        record.group, record.busy_since = group, now
        record.ending = group.stage is not Stage.DIT
        self.refresh(record)

    def hand_over(self, gpu: GpuId, group: Group) -> None:
        """A busy GPU goes on as a member of another group."""
        self._gpus[gpu].group = group

    def give_back(self, gpu: GpuId, now: float) -> None:
        """A group lets a GPU go."""
        record = self._gpus[gpu]
        record.group = None
        record.ending = False
        record.busy_s += now - record.busy_since
        record.worked.append((record.busy_since, now))
        while record.worked and record.worked[0][1] < now - self._window_s:
            record.worked.popleft()
        self.refresh(record)
        if self.when_freed is not None:
            self.when_freed(record)

    def set_ending(self, gpu: GpuId) -> bool:
        """The GPU's present work is about to end; False where that was known."""
        record = self._gpus[gpu]
        if record.ending:
            return False
        record.ending = True
        self.refresh(record)
        return True

    def refresh(self, gpu: Gpu) -> None:
        """Bring the indices in line with a changed GPU."""
        number, idle = gpu.gpu, gpu.is_idle
        slot = gpu.ending and len(gpu.prepared) < self._prefetch_depth
        listed = self._listed[number]
        changed = listed.keys() != gpu.resident and self._list(gpu, listed)
        serves_all = not (gpu.draining or gpu.dropping or gpu.retiring)  # as nearly always
        for key, index in listed.items():
            if serves_all or gpu.serves(key):
                changed |= index.update(number, True, idle, slot)
            else:
                changed |= index.update(number, False, False, False)
        if changed:
            self.touch(gpu.node)

    def _list(self, gpu: Gpu, listed: dict[StageKey, StageIndex]) -> bool:
        """A GPU holds other stages than before; whether any index lost it."""
        changed = False
        for key in listed.keys() - gpu.resident:
            changed |= listed.pop(key).update(gpu.gpu, False, False, False)
        for key in gpu.resident:
            listed[key] = self._stages.setdefault(key, StageIndex())
        return changed
