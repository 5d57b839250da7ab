"""The slow decision as a Dask actor: which stages are resident where.

It thinks; it does not act. Its plan goes to the control plane, which orders the loads and drops
that the plan lacks over the ordered streams it has to every engine. They are not calls of this
actor to `EngineActor`, because a call between two Dask workers never returns if the callee dies,
because calls overtake each other, and because a GPU may only drop a stage once nothing runs there
that needs it, which the control plane knows and this actor does not. So nothing is left half done
when the actor dies in the middle of a thought: the last plan stays in force.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import get_worker

from elastic_dit.cluster.plane.planning import Planner
from elastic_dit.config import PlacementConfig
from elastic_dit.control.snapshot import ClusterSnapshot

__all__ = ["SCHEDULER_ACTOR", "SchedulerActor"]

SCHEDULER_ACTOR = "elastic-dit-scheduler"
"""Name of the published dataset that holds it: ``client.get_dataset(SCHEDULER_ACTOR)``."""


class SchedulerActor:
    """Looks at the cluster, plans, publishes.

    `ControlWorkerPlugin` makes it on a control worker and lets it look at every interval; anybody
    else may too. The policy runs in a thread, so that thinking blocks no heartbeat.
    """

    def __init__(self) -> None:
        self._worker = get_worker()
        self._planner = Planner()
        self._looks = 0
        self._plans = 0
        self._last_epoch = 0

    def __repr__(self) -> str:
        return f"<SchedulerActor on {self._worker.address}: {self._plans} of {self._looks} looks>"

    async def look(self) -> dict[str, Any]:
        """Look once.

        Returns
        -------
        dict
            As `status`.

        Raises
        ------
        ConfigError
            Where no placement policy has the configured name.
        """
        seen = await self._worker.scheduler.elastic_dit_snapshot()
        snapshot = ClusterSnapshot.from_wire(seen["snapshot"])
        placement = PlacementConfig.model_validate(seen["placement"])
        self._looks += 1
        plan = await asyncio.to_thread(
            self._planner.plan, placement, tuple(seen["models"]), snapshot
        )
        if plan is not None:
            reply = await self._worker.scheduler.elastic_dit_publish_plan(plan=plan.to_wire())
            self._plans += bool(reply["accepted"])
            self._last_epoch = plan.epoch
        return await self.status()

    async def status(self) -> dict[str, Any]:
        """``worker`` it lives on, ``looks`` and accepted ``plans`` so far, ``last_epoch``."""
        return {
            "worker": self._worker.address,
            "looks": self._looks,
            "plans": self._plans,
            "last_epoch": self._last_epoch,
        }
