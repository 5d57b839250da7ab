"""The fixed instances of one model: which are free, and whom the others serve.

Kept up to date by what changed since the last look, so that a look takes no longer on a larger
cluster.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from elastic_dit.control.policies.layouts import Layout, Unit
from elastic_dit.control.view import ClusterView
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["Instances"]


class Instances:
    """Units of one model.

    A unit belongs to the request that it was given to, until its decode too, unless that goes back
    to an earlier stage or is given another, or the unit is no more.

    Parameters
    ----------
    key : StageKey
        The DiT stage of the model.
    layout : Layout
    """

    def __init__(self, key: StageKey, layout: Layout) -> None:
        self._key = key
        self._layout = layout
        self._seen = (-1, -1)
        self._laid_out_for = -1
        self._on_node: dict[str, list[Unit]] = {}
        self._free: dict[int, list[Unit]] = {}
        self._all_free: set[Unit] = set()
        self._owners: dict[Unit, str] = {}
        self._owned: dict[str, Unit] = {}
        self._held: dict[GpuId, int] = {}
        self._between: dict[str, None] = {}

    def __repr__(self) -> str:
        taken = len(self._owned)
        return f"<Instances of {self._key.model}: {len(self._all_free)} free, {taken} taken>"

    @property
    def kinds(self) -> Sequence[int]:
        """Kinds that there are units of, ascending."""
        return tuple(self._free)

    @property
    def any_free(self) -> bool:
        """Whether a unit is free."""
        return bool(self._all_free)

    def unit_of(self, request_id: str) -> Unit | None:
        """The unit that serves a request."""
        return self._owned.get(request_id)

    @property
    def held(self) -> AbstractSet[GpuId]:
        """GPUs of the units that serve a request."""
        return self._held.keys()

    def free(self, kind: int, avoid: AbstractSet[GpuId] = frozenset()) -> Unit | None:
        """The lowest free unit of a kind, one without GPUs to avoid if there is one."""
        units = self._free.get(kind)
        if not units:
            return None
        if avoid:
            return next((unit for unit in units if avoid.isdisjoint(unit.block.gpus)), units[0])
        return units[0]

    # ------------------------------------------------------------------------ giving
    def take(self, unit: Unit, request_id: str) -> None:
        """A free unit serves a request from now on."""
        self._release(request_id)
        self._set_free(unit, False)
        self._owners[unit], self._owned[request_id] = request_id, unit
        for gpu in unit.block.gpus:
            self._held[gpu] = self._held.get(gpu, 0) + 1

    def _release(self, request_id: str) -> Unit | None:
        unit = self._owned.pop(request_id, None)
        if unit is None:
            return None
        del self._owners[unit]
        for gpu in unit.block.gpus:
            self._held[gpu] -= 1
            if not self._held[gpu]:
                del self._held[gpu]
        return unit

    # ----------------------------------------------------------------------- looking
    def look(self, view: ClusterView) -> None:
        """Take note of what changed since the last look."""
        if self._seen == view.version:
            return
        changed = list(view.touched(self._seen))
        self._seen = view.version
        for request_id in tuple(self._between):
            self._check_owner(view, request_id)
        if self._is_laid_out_anew(view):
            return
        for node in changed:
            for unit in self._on_node.get(node, ()):
                self._check(view, unit)

    def _check(self, view: ClusterView, unit: Unit) -> None:
        """Whether a unit is free."""
        owner = self._owners.get(unit)
        if owner is not None and self._check_owner(view, owner):
            self._set_free(unit, False)
        else:
            gpus = unit.block.gpus
            self._set_free(unit, view.are_free(self._key, gpus))

    def _set_free(self, unit: Unit, free: bool) -> None:
        if free == (unit in self._all_free):
            return
        units = self._free[unit.kind]
        if free:
            self._all_free.add(unit)
            insort(units, unit)
        else:
            self._all_free.remove(unit)
            del units[bisect_left(units, unit)]

    def _check_owner(self, view: ClusterView, request_id: str) -> bool:
        """Whether a request is still to be served here; its unit is given up where it is not."""
        record, unit = view.requests.get(request_id), self._owned.get(request_id)
        group = record.group if record is not None else None
        goes_back = record is not None and group is None and record.stage is not Stage.DECODER
        if record is None or unit is None or goes_back:
            self._between.pop(request_id, None)
            self._release(request_id)
            if unit is not None and unit.kind in self._free:
                self._check(view, unit)
            return False
        if group is None or group.held.isdisjoint(unit.block.gpus):
            self._between[request_id] = None  # its end is no change of the unit's machine
        else:
            self._between.pop(request_id, None)
        return True

    def _is_laid_out_anew(self, view: ClusterView) -> bool:
        """Lay the units out where other GPUs serve the model than before."""
        version = view.serving_version(self._key)
        if version == self._laid_out_for:
            return False
        self._laid_out_for = version
        serving = view.serving(self._key)
        nodes = {gpu: node for node in view.nodes for gpu in view.node(node) if gpu in serving}
        units = self._layout.units(sorted(nodes), view.config.slots_per_node)
        for unit in set(self._owners).difference(units):
            self._release(self._owners[unit])
        self._free = {kind: [] for kind in sorted({unit.kind for unit in units})}
        self._all_free.clear()
        self._on_node = {}
        for unit in units:
            self._on_node.setdefault(nodes[unit.block.start], []).append(unit)
            self._check(view, unit)
        return True
