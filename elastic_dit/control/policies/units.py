"""Fixed model instances: what DDiT is compared with (paper §6.1).

A *unit* is a set of GPUs that serves one request at a time at a fixed DoP. Coupled, all of it is
busy until the video is decoded; decoupled, it is free once the latents are there, and the decode
takes one GPU of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

from sortedcontainers import SortedDict

from elastic_dit.control import actions
from elastic_dit.control.dispatch import first_come, nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.policies.counts import widest_machine
from elastic_dit.control.policies.instances import Instances
from elastic_dit.control.policies.layouts import EqualUnits, Layout, RatioUnits, SameUnits, Unit
from elastic_dit.control.policies.shape_times import ShapeBook
from elastic_dit.control.view import ClusterView, QueueView, RequestView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["FixedUnits", "StaticDop"]

_Line = SortedDict[int, RequestView]
"""Requests of one optimal DoP that wait to be denoised, in order of acceptance."""


class FixedUnits:
    """First come, first served over fixed, coupled units.

    Parameters
    ----------
    name : str
        For its `repr`.
    layout : Layout
    isolated : bool
        Whether a request may run only on units of its kind; else it takes one of its kind where
        that is free, and otherwise the largest below, or the smallest above.
    """

    watches_steps = False
    watches_clock = False

    def __init__(self, name: str, layout: Layout, *, isolated: bool = False) -> None:
        self._name = name
        self._layout = layout
        self._isolated = isolated
        self._shapes = ShapeBook()
        self._models: dict[StageKey, Instances] = {}
        self._new: list[RequestView] = []
        self._lines: dict[StageKey, dict[int, _Line]] = {}
        self._decided: tuple[object, ...] = ()

    def __repr__(self) -> str:
        return f"FixedUnits({self._name!r})"

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Order of acceptance."""
        if self._isolated and request.stage is Stage.DIT:
            self._new.append(request)
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """Decode on the units that denoised; give free units to those in line."""
        if self._decided == (view.version, view.widest):
            return  # it would find all as it left it
        self._shapes.begin(view, now)
        yield from self._decodes(view)
        self._form_lines(view)
        for instances in self._models.values():
            instances.look(view)
        for key, queue in view.queues(Stage.DIT):
            instances = self._instances(key)
            instances.look(view)
            while (found := self._next(view, key, queue)) is not None:
                request, unit = found
                instances.take(unit, request.request_id)
                reason = f"unit of {unit.block.size} is free"
                yield actions.Start(request.request_id, _as_allowed(view, request, unit), reason)
        yield from self._encodes(view)
        self._decided = (view.version, view.widest)

    def _instances(self, key: StageKey) -> Instances:
        found = self._models.get(key)
        if found is None:
            found = self._models[key] = Instances(key, self._layout)
        return found

    def _next(
        self, view: ClusterView, key: StageKey, queue: QueueView
    ) -> tuple[RequestView, Unit] | None:
        """The first in line that a unit is free for, and that unit."""
        instances = self._models[key]
        if not instances.any_free:
            return None
        if self._isolated:
            units = (
                (request, instances.free(_kind(dop, instances), request.avoid))
                for dop, line in self._lines.get(key, {}).items()
                if (request := _head(line)) is not None
            )
            pairs = [(request, unit) for request, unit in units if unit is not None]
            return min(pairs, key=lambda pair: pair[0].sequence, default=None)
        head = queue.head
        if head is None:
            return None
        unit = _nearest(self._optimal(view, head), instances, head.avoid)
        return None if unit is None else (head, unit)

    def _form_lines(self, view: ClusterView) -> None:
        """Those that began to wait join the line of their optimal DoP."""
        for request in self._new:
            lines = self._lines.setdefault(StageKey(request.request.model, Stage.DIT), {})
            line = lines.setdefault(self._optimal(view, request), SortedDict())
            line[request.sequence] = request
        self._new.clear()

    def _optimal(self, view: ClusterView, request: RequestView) -> int:
        return self._shapes.times(request, view).optimal(view.config.slots_per_node)

    def _decodes(self, view: ClusterView) -> Iterator[actions.Action]:
        """On the whole unit that denoised; on any GPU where that is lost."""
        for key, queue in view.queues(Stage.DECODER):
            instances = self._models.get(StageKey(key.model, Stage.DIT))
            for request in list(queue):
                unit = instances.unit_of(request.request_id) if instances is not None else None
                gpus = _as_allowed(view, request, unit) if unit is not None else ()
                if not gpus or not view.are_free(key, gpus):
                    gpu = nearest_gpu(view, request)
                    gpus = (gpu,) if gpu is not None else ()
                if gpus:
                    yield actions.Start(request.request_id, gpus, "denoised here")

    def _encodes(self, view: ClusterView) -> Iterator[actions.Action]:
        """On any GPU that no unit at work needs."""
        held = [instances.held for instances in self._models.values()]
        for key, queue in view.queues(Stage.ENCODER):
            while (head := queue.head) is not None and view.has_room_after(key):
                gpus = (gpu for gpu in view.free(key) if not any(gpu in units for units in held))
                gpu = next(gpus, None)
                if head.avoid and gpu in head.avoid:
                    gpu = next((other for other in gpus if other not in head.avoid), gpu)
                if gpu is None:
                    break
                yield actions.Start(head.request_id, (gpu,), "first in line")


def _head(line: _Line) -> RequestView | None:
    """The first of a line that waits in its queue; those that moved on leave it."""
    gone = []
    head = None
    for sequence, request in line.items():
        if request.in_line and request.stage is Stage.DIT:
            head = request
            break
        if not request.phase.is_waiting or request.stage is not Stage.DIT:
            gone.append(sequence)
    for sequence in gone:
        del line[sequence]
    return head


def _kind(dop: int, instances: Instances) -> int:
    """The kind of unit that is meant for requests of an optimal DoP."""
    kinds = instances.kinds
    return max((kind for kind in kinds if kind <= dop), default=min(kinds, default=0))


def _as_allowed(view: ClusterView, request: RequestView, unit: Unit) -> tuple[GpuId, ...]:
    """A unit's GPUs, as many of them as may work on a request together."""
    return unit.block.gpus[: view.allowed_dop(request, unit.block.size)]


def _nearest(dop: int, instances: Instances, avoid: AbstractSet[GpuId]) -> Unit | None:
    """A free unit of the kind meant for a DoP, else of the largest below, or smallest above."""
    meant = _kind(dop, instances)
    for kind in sorted(instances.kinds, key=lambda kind: (kind > meant, abs(kind - meant))):
        unit = instances.free(kind, avoid)
        if unit is not None:
            return unit
    return None


class StaticDop:
    """One DoP for all, decoupled: any free GPUs of a node, of which one also decodes.

    Parameters
    ----------
    dop : int
    """

    watches_steps = False
    watches_clock = False

    def __init__(self, dop: int) -> None:
        self._dop = dop

    def __repr__(self) -> str:
        return f"StaticDop({self._dop})"

    def order(self, request: RequestView) -> tuple[object, ...]:  # noqa: ARG002
        """Order of acceptance."""
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:  # noqa: ARG002
        """Decodes, then whole groups, then encodes."""
        yield from first_come(view, Stage.DECODER)
        for _, queue in view.queues(Stage.DIT):
            while (request := queue.head) is not None:
                gpus = self._group(view, request)
                if gpus is None:
                    break
                yield actions.Start(request.request_id, gpus, f"{len(gpus)} GPUs are free")
        yield from first_come(view, Stage.ENCODER)
        yield from prefetches(view)

    def _group(self, view: ClusterView, request: RequestView) -> tuple[GpuId, ...] | None:
        """Free GPUs of one node: `_dop`, or fewer where no node has or it cannot use so many."""
        free, dop = view.free(request.key), view.allowed_dop(request, self._dop)
        others = [gpu for gpu in free if gpu not in request.avoid] if request.avoid else ()
        found = _of_one_node(view, others, dop) or _of_one_node(view, free, dop)
        if found is not None:
            return found
        widest = widest_machine(view, (request.key,))
        if widest >= dop:
            return None
        return _of_one_node(view, free, view.allowed_dop(request, widest))


def _of_one_node(view: ClusterView, gpus: Iterable[GpuId], count: int) -> tuple[GpuId, ...] | None:
    by_node: dict[int, list[GpuId]] = {}
    for gpu in gpus:
        members = by_node.setdefault(gpu // view.config.slots_per_node, [])
        members.append(gpu)
        if len(members) == count:
            return tuple(members)
    return None


_PAPER_KINDS = (1, 2, 4)
"""Optimal DoPs of the three resolutions of DDiT's evaluation."""

for _dop in (1, 2, 4, 8):
    _name = f"static-{_dop}"
    register_dispatch(_name, partial(FixedUnits, _name, SameUnits(_dop)))
    register_dispatch(f"{_name}-decoupled", partial(StaticDop, _dop))
_equal = EqualUnits(_PAPER_KINDS)
_known_mix = RatioUnits(dict.fromkeys(_PAPER_KINDS, 1.0))
register_dispatch("spci", partial(FixedUnits, "spci", _known_mix, isolated=True))
register_dispatch("dpci", partial(FixedUnits, "dpci", _equal, isolated=True))
register_dispatch("dp", partial(FixedUnits, "dp", _equal))
