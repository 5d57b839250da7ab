"""Fixed model instances: what DDiT is compared with (paper §6.1).

A *unit* is a set of GPUs that serves one request at a time at a fixed DoP. Coupled, all of it is
busy until the video is decoded; decoupled, it is free once the latents are there, and the decode
takes one GPU of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from elastic_dit.control import actions
from elastic_dit.control.block import Block
from elastic_dit.control.dispatch import first_come, nearest_gpu, prefetches, register_dispatch
from elastic_dit.control.policies.optimal import OptimalDops
from elastic_dit.control.ratio import split_by_ratio
from elastic_dit.control.view import ClusterView, QueueView, RequestView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = [
    "EqualUnits",
    "FixedUnits",
    "Layout",
    "RatioUnits",
    "SameUnits",
    "StaticDop",
    "Unit",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """One model instance.

    Attributes
    ----------
    block : Block
    kind : int
        Optimal DoP of the requests it is meant for; 0 for all.
    """

    block: Block
    kind: int = 0


class Layout(Protocol):
    """How the GPUs are cut into units."""

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:
        """Units of the GPUs there are, ascending."""
        ...


@dataclass(frozen=True, slots=True)
class SameUnits:
    """Every aligned block of `dop` GPUs is a unit for all requests: static DoP."""

    dop: int

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:  # noqa: ARG002
        """All whole blocks."""
        return [Unit(block) for block in _blocks(gpus, self.dop)]


@dataclass(frozen=True, slots=True)
class RatioUnits:
    """GPUs shared out by a known mix of requests, at one DoP for all (SPCI).

    Attributes
    ----------
    shares : mapping of int to float
        Part of the requests by their optimal DoP.
    dop : int
        Of every unit.
    """

    shares: Mapping[int, float]
    dop: int = 1

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:  # noqa: ARG002
        """Whole blocks, the kinds in proportion by largest remainder, at least one each."""
        blocks = list(_blocks(gpus, self.dop))
        counts = split_by_ratio(len(blocks), self.shares)
        order = [kind for kind in sorted(counts) for _ in range(counts[kind])]
        return [Unit(block, kind) for block, kind in zip(blocks, order, strict=True)]


@dataclass(frozen=True, slots=True)
class EqualUnits:
    """As many units for every kind, each at the optimal DoP of its kind (DPCI, DP)."""

    kinds: tuple[int, ...]

    def units(self, gpus: Sequence[GpuId], slots_per_node: int) -> list[Unit]:
        """Large units first, so that all are aligned; what is left over forms none."""
        free = set(gpus)
        units: list[Unit] = []
        each = len(gpus) // sum(self.kinds)
        for kind in sorted(self.kinds, reverse=True):
            size = min(kind, slots_per_node)
            for block in list(_blocks(sorted(free), size))[:each]:
                units.append(Unit(block, kind))
                free.difference_update(block.gpus)
        return sorted(units, key=lambda unit: unit.block)


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

    def __init__(self, name: str, layout: Layout, *, isolated: bool = False) -> None:
        self._name = name
        self._layout = layout
        self._isolated = isolated
        self._taken: dict[str, Unit] = {}
        self._units: list[Unit] = []
        self._laid_out: frozenset[GpuId] = frozenset()

    def __repr__(self) -> str:
        return f"FixedUnits({self._name!r})"

    def order(self, request: RequestView) -> tuple[object, ...]:  # noqa: ARG002
        """Order of acceptance."""
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:  # noqa: ARG002
        """Decode on the units that denoised; give free units to those in line."""
        self._taken = {name: u for name, u in self._taken.items() if name in view.requests}
        yield from self._decodes(view)
        for key, queue in tuple(view.queues(Stage.DIT)):
            self._lay_out(view, key)
            for request, unit in self._pairs(view, key, queue):
                self._taken[request.request_id] = unit
                reason = f"unit of {unit.block.size} is free"
                yield actions.Start(request.request_id, unit.block.gpus, reason)
        yield from self._encodes(view)

    def _pairs(
        self, view: ClusterView, key: StageKey, queue: QueueView
    ) -> list[tuple[RequestView, Unit]]:
        """Those in line, with the units that take them."""
        free = [unit for unit in self._units if self._is_free(view, key, unit)]
        dops = OptimalDops(view)
        pairs = []
        for request in queue if free else ():
            unit = self._choose(dops.of(request.request), free)
            if unit is not None:
                free.remove(unit)
                pairs.append((request, unit))
            if not free:
                break
        return pairs

    def _lay_out(self, view: ClusterView, key: StageKey) -> None:
        serving = frozenset(view.serving(key))
        if serving != self._laid_out:
            self._laid_out = serving
            self._units = self._layout.units(sorted(serving), view.config.slots_per_node)

    def _is_free(self, view: ClusterView, key: StageKey, unit: Unit) -> bool:
        taken = unit in self._taken.values()
        return not taken and all(view.is_free(key, gpu) for gpu in unit.block.gpus)

    def _choose(self, wanted: int, free: list[Unit]) -> Unit | None:
        kinds = sorted({unit.kind for unit in self._units})
        kind = max((kind for kind in kinds if kind <= wanted), default=kinds[0])
        if self._isolated:
            return next((unit for unit in free if unit.kind == kind), None)

        def distance(unit: Unit) -> tuple[bool, int, int]:
            return (unit.kind > kind, abs(unit.kind - kind), unit.block.start)

        return min(free, key=distance, default=None)

    def _decodes(self, view: ClusterView) -> Iterator[actions.Action]:
        """On the whole unit that denoised; on any GPU where that is lost."""
        for key, queue in tuple(view.queues(Stage.DECODER)):
            for request in list(queue):
                unit = self._taken.get(request.request_id)
                gpus = unit.block.gpus if unit is not None else ()
                if not gpus or not all(view.is_free(key, gpu) for gpu in gpus):
                    gpu = nearest_gpu(view, request)
                    gpus = (gpu,) if gpu is not None else ()
                if gpus:
                    yield actions.Start(request.request_id, gpus, "denoised here")

    def _encodes(self, view: ClusterView) -> Iterator[actions.Action]:
        """On any GPU that no unit at work needs."""
        held = {gpu for unit in self._taken.values() for gpu in unit.block.gpus}
        for key, queue in tuple(view.queues(Stage.ENCODER)):
            free = [gpu for gpu in view.free(key) if gpu not in held]
            while free and queue.head is not None and view.has_room_after(key):
                yield actions.Start(queue.head.request_id, (free.pop(0),), "first in line")


class StaticDop:
    """One DoP for all, decoupled: any free GPUs of a node, of which one also decodes.

    Parameters
    ----------
    dop : int
    """

    watches_steps = False

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
        for key, queue in tuple(view.queues(Stage.DIT)):
            while (request := queue.head) is not None:
                gpus = self._group(view, key)
                if gpus is None:
                    break
                yield actions.Start(request.request_id, gpus, f"{self._dop} GPUs are free")
        yield from first_come(view, Stage.ENCODER)
        yield from prefetches(view)

    def _group(self, view: ClusterView, key: StageKey) -> tuple[GpuId, ...] | None:
        by_node: dict[int, list[GpuId]] = {}
        for gpu in view.free(key):
            members = by_node.setdefault(gpu // view.config.slots_per_node, [])
            members.append(gpu)
            if len(members) == self._dop:
                return tuple(members)
        return None


def _blocks(gpus: Sequence[GpuId], size: int) -> Iterator[Block]:
    """Whole aligned blocks among some GPUs."""
    there = set(gpus)
    for start in sorted({gpu - gpu % size for gpu in gpus}):
        block = Block(start, size)
        if there.issuperset(block.gpus):
            yield block


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
