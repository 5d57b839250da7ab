"""Machines that come and go as the placement policy wants it, over any Dask cluster class.

Dask's own `Adaptive` counts tasks, of which there are none here, and closes single workers. Ours
asks the control plane how many machines there shall be, starts whole ones, and closes a machine
once the control plane has drained it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Adaptive, Status

from elastic_dit.cluster.launch.bootstrap import install_control
from elastic_dit.cluster.launch.workers import CONTROL_SUFFIX
from elastic_dit.config import Config
from elastic_dit.control.departures import Departure

__all__ = ["Machine", "MachineAdaptive", "machines_of"]

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 30.0
"""Longest answer of the control plane, seconds."""
_RETIRE_TIMEOUT_S = 120.0
"""Longest time in which Dask may copy finished results to other machines, seconds."""
_RETRY_S = 30.0
"""Wait after a machine could not be started until the next is tried, seconds."""
_LOST_S = 300.0
"""A machine whose engines have all been away for so long does not come back: it is closed, and
another may take its place. Restarts of its processes take less, seconds."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster object.

    Attributes
    ----------
    name : hashable
        Its entry's name in the cluster's ``worker_spec``, or what several entries give as
        theirs under ``machine``.
    entries : list of hashable
        Its entries there.
    workers : set of str
        Names under which its engines' workers join.
    """

    name: Hashable
    entries: list[Hashable] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)


def machines_of(cluster: Any) -> dict[Hashable, Machine]:
    """Machines that a `distributed.SpecCluster` has or is starting, the oldest first.

    One entry of its ``worker_spec`` is one machine: a job of a batch system, whose workers have
    the entry's ``group`` of suffixes, or a single worker. Entries of the same ``machine``, as
    `elastic_dit.cluster.launch.workers.worker_spec` makes them, are one machine together.

    Parameters
    ----------
    cluster : distributed.SpecCluster
    """
    found: dict[Hashable, Machine] = {}
    for entry, spec in cluster.worker_spec.items():
        name = spec.get("machine", entry)
        machine = found.setdefault(name, Machine(name))
        machine.entries.append(entry)
        machine.workers.update(f"{entry}{suffix}" for suffix in spec.get("group", ("",)))
    return found


class MachineAdaptive(Adaptive):  # type: ignore[misc]
    """Follows what the placement policy wants: whole machines, drained before they are closed.

    Parameters
    ----------
    cluster : distributed.SpecCluster
        Or anything with its ``worker_spec``, ``new_worker_spec``, ``scale_down`` and ``await``.
    config : Config, optional
        The deployment's settings, with ``placement.min_machines`` and ``max_machines``, where no
        worker and no client brings them before.
    spares : mapping, optional
        Entries of ``worker_spec`` that may be added, for a cluster that cannot make any. Machines
        given back are spares too.
    **options
        Of `distributed.Adaptive`: ``interval``; ``minimum`` and ``maximum`` count machines of
        this cluster, beside the limits of the settings.

    Examples
    --------
    >>> from dask_jobqueue import SLURMCluster                             # doctest: +SKIP
    >>> cluster = SLURMCluster(
    ...     processes=8, worker_command="elastic_dit.cli.worker", ...)     # doctest: +SKIP
    >>> cluster.adapt(Adaptive=MachineAdaptive, config=config, interval="2s")  # doctest: +SKIP
    """

    def __init__(
        self,
        cluster: Any,
        *,
        config: Config | None = None,
        spares: Mapping[Hashable, Any] | None = None,
        **options: Any,
    ) -> None:
        self._config = config
        self._is_heard = False
        self._nodes: Mapping[str, Mapping[str, Any]] = {}
        self._arrived: set[Hashable] = set()
        self._away_since: dict[Hashable, float] = {}
        self._spares = {name: {name: entry} for name, entry in (spares or {}).items()}
        self._retry_at = 0.0
        super().__init__(cluster, **options)

    def __repr__(self) -> str:
        return f"<MachineAdaptive of {len(machines_of(self.cluster))} machines, {self.state}>"

    # -- what Dask's own loop asks
    async def target(self) -> int:
        """Machines that this cluster shall have."""
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            if not self._is_heard:
                await install_control(self.scheduler, self._config)
                self._is_heard = True
            answer = await self.scheduler.elastic_dit_machines()
        self._nodes = answer["machines"]
        here = machines_of(self.cluster)
        self._note_presence(here)
        ours = {node for machine in here.values() for node in self._nodes_of(machine)}
        others = len(self._nodes.keys() - ours)
        if answer["wanted"] is None:
            return max(len(here), int(answer["least"]) - others)
        return int(answer["wanted"]) - others

    async def recommendations(self, target: int) -> dict[str, Any]:
        """What to do: give drained and lost machines back, ask for some, or take that back."""
        here = machines_of(self.cluster)
        drained = [machine.name for machine in here.values() if self._is_drained(machine)]
        lost = [name for name, at in self._away_since.items() if self._now() - at > _LOST_S]
        spare = lost + drained[: max(0, len(here) - self.minimum)]
        if not spare and len(here) > target:
            late = [name for name in here if name not in self._arrived]
            spare = late[target - len(here) :]
        if spare:
            return {"status": "down", "workers": spare}
        if len(here) < target and self._may_start():
            return {"status": "up", "n": target}
        return {"status": "same"}

    async def scale_up(self, n: int) -> None:
        """Start machines until there are `n`; those that cannot be started are given up."""
        if self._is_closing:
            return
        added: dict[Hashable, Any] = {}
        while len(machines_of(self.cluster)) < n and (entries := self._next_machine()):
            logger.info("Asking for a machine: %s", ", ".join(map(str, entries)))
            self.cluster.worker_spec.update(entries)
            added.update(entries)
        try:
            await self.cluster
        except Exception:
            if self._is_closing:
                return  # which ends what was starting
            logger.warning("Could not start %s", ", ".join(map(str, added)), exc_info=True)
            self._retry_at = self._now() + _RETRY_S
            await self.cluster.scale_down(list(added))

    async def scale_down(self, workers: Iterable[Hashable]) -> None:
        """Close machines, by name: those that the control plane lets go, or that never came."""
        here, known = machines_of(self.cluster), dict(self.cluster.worker_spec)
        leaving = await self._granted([here[name] for name in workers if name in here])
        if not leaving:
            return
        logger.info("Giving back %s", ", ".join(str(machine.name) for machine in leaving))
        await self._retire(leaving)
        entries = [entry for machine in leaving for entry in machine.entries]
        for machine in leaving:
            self._spares[machine.name] = {entry: known[entry] for entry in machine.entries}
        await self.cluster.scale_down(entries)

    # -- within
    @property
    def _is_closing(self) -> bool:
        """Whether the cluster closes while a look is under way, or has since."""
        return self.cluster.status in (Status.closing, Status.closed)

    def _note_presence(self, here: Mapping[Hashable, Machine]) -> None:
        """Note which machines have ever come, and which of them are away since when."""
        present = {name for name, machine in here.items() if self._nodes_of(machine)}
        self._arrived = (self._arrived | present) & here.keys()
        self._away_since = {
            name: self._away_since.get(name, self._now()) for name in self._arrived - present
        }

    def _nodes_of(self, machine: Machine) -> list[str]:
        """Names that the control plane knows a machine by, usually one; none if it is not there."""
        return [
            node
            for node, known in self._nodes.items()
            if not machine.workers.isdisjoint(known["workers"])
        ]

    def _is_drained(self, machine: Machine) -> bool:
        nodes = self._nodes_of(machine)
        return bool(nodes) and all(
            self._nodes[node]["departure"] in (Departure.DRAINED, Departure.LEAVING)
            for node in nodes
        )

    async def _granted(self, machines: list[Machine]) -> list[Machine]:
        asked = [sorted(self._nodes_of(machine)) for machine in machines]
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            answer = await self.scheduler.elastic_dit_give_back(machines=asked)
        granted = [list(nodes) for nodes in answer["granted"]]
        return [m for m, nodes in zip(machines, asked, strict=True) if nodes in granted]

    async def _retire(self, machines: list[Machine]) -> None:
        """Let Dask copy finished results elsewhere, then close the workers."""
        names = {f"{machine.name}{CONTROL_SUFFIX}" for machine in machines}
        for machine in machines:
            names |= machine.workers
        try:
            async with asyncio.timeout(_RETIRE_TIMEOUT_S):
                await self.scheduler.retire_workers(
                    names=sorted(names), remove=True, close_workers=True
                )
        except TimeoutError:
            logger.warning("Not all results on %s found another place", sorted(names))

    def _next_machine(self) -> dict[Hashable, Any]:
        """Entries of one more machine; none where there is none to be had."""
        entries: dict[Hashable, Any] = self.cluster.new_worker_spec()
        if all(spec is not None for spec in entries.values()):
            return entries
        # A cluster of given hosts, as over SSH: those given back can be had again.
        return self._spares.pop(next(iter(self._spares)), {}) if self._spares else {}

    def _may_start(self) -> bool:
        return self._now() >= self._retry_at

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
