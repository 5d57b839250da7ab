"""What the control plane says of machines to whoever can get some and give them back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.control.departures import Departure
from elastic_dit.events import NodeLeaves

__all__ = ["MachineDesk"]

_GONE = (Departure.DRAINED, Departure.LEAVING)
"""How far a machine must be to be closed; what was granted is granted again."""


class MachineDesk:
    """Answers the calls of `elastic_dit.cluster.launch.machines.MachineAdaptive`.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def __repr__(self) -> str:
        return f"<MachineDesk: {self.wanted or 'any number of'} machines wanted>"

    @property
    def wanted(self) -> int | None:
        """Machines that a policy wants in all, within the limits; None where it said nothing."""
        limits, asked = self._reactor.config.placement, self._reactor.carrier.nodes_wanted
        if limits.max_machines is None or asked is None:
            return None
        return min(max(asked, limits.min_machines), limits.max_machines)

    async def machines(self) -> dict[str, Any]:
        """How many there shall be, and which there are.

        Returns
        -------
        dict
            ``wanted``, machines in all or None; ``least``, below which there shall never be
            fewer; ``machines``, by name: ``workers``, names of their engines' workers, and
            ``departure``, a `Departure` or None.
        """
        limits = self._reactor.config.placement
        workers = defaultdict(list)
        for member in self._reactor.directory.members:
            workers[member.hello.node].append(member.hello.name)
        departures = self._reactor.controller.departures
        return {
            "wanted": self.wanted,
            "least": 0 if limits.max_machines is None else limits.min_machines,
            "machines": {
                node: {"workers": names, "departure": departures.get(node)}
                for node, names in workers.items()
            },
        }

    async def give_back(self, machines: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Ask to close drained machines. What is granted must be closed: no plan can keep it.

        Parameters
        ----------
        machines : sequence of sequence of str
            Those that only go together are together.

        Returns
        -------
        dict
            ``granted``: those that may be closed. Not those that a plan has kept in the last
            moment, nor any where too few would be left.
        """
        controller, limits = self._reactor.controller, self._reactor.config.placement
        departures, nodes = controller.departures, controller.pool.nodes
        stay = sum(departures.get(node) is not Departure.LEAVING for node in nodes)
        granted = []
        for names in machines:
            if limits.max_machines is None or any(departures.get(n) not in _GONE for n in names):
                continue
            fresh = [node for node in names if departures.get(node) is Departure.DRAINED]
            if not fresh or stay - len(fresh) >= limits.min_machines:
                for node in fresh:
                    self._reactor.observe(NodeLeaves(node=node))
                stay -= len(fresh)
                granted.append(list(names))
        return {"granted": granted}
