"""Who makes placement plans, and when.

The scheduler actor does, wherever one holds the lease. While none does (there is no control
worker, or it has just died) the control plane plans by itself: nothing depends on the actor. The
snapshot is taken here either way, so telemetry is too: it outlives planners, in one file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from distributed import Status

from elastic_dit.cluster.launch.lease import Lease
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.plane.telemetry import TelemetryKeeper
from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement import PlacementPolicy, make_placement
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.events import PlanPublished
from elastic_dit.state import PlacementPlan

__all__ = ["Planner", "Planning"]

logger = logging.getLogger(__name__)

_LEASE_INTERVALS = 3
"""Looks that a scheduler actor may miss before another takes its place."""
_SETTLING_INTERVALS = 1 / 8
"""Time without a further change after which a changed set of engines is planned for: workers of
one machine join one after the other, and a stage loaded for a moment is a load wasted."""


class Planner:
    """The configured placement policy, made anew when its settings or the models change."""

    def __init__(self) -> None:
        self._made_for: tuple[PlacementConfig, tuple[str, ...]] | None = None
        self._policy: PlacementPolicy | None = None

    def __repr__(self) -> str:
        return f"<Planner {self._policy!r}>"

    def plan(
        self, config: PlacementConfig, models: tuple[str, ...], snapshot: ClusterSnapshot
    ) -> PlacementPlan | None:
        """A new plan, None where the present one is right.

        Raises
        ------
        ConfigError
            Where no policy has the configured name.
        """
        if self._policy is None or self._made_for != (config, models):
            self._policy = make_placement(config, models)
            self._made_for = config, models
        return self._policy.plan(snapshot, snapshot.at)


class Planning:
    """Gives the job of planning to one scheduler actor, and does it while there is none.

    Parameters
    ----------
    reactor : Reactor
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.configure()
        self._planner = Planner()
        self._planned_at = reactor.clock()
        self._memberships = 0
        self._settling: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Planning {self._lease}>"

    def configure(self) -> None:
        """Take the reactor's settings."""
        placement = self._reactor.config.placement
        self._lease = Lease(_LEASE_INTERVALS * placement.interval_s)
        self._telemetry = TelemetryKeeper(placement)

    @property
    def planner(self) -> str:
        """Address of the worker whose scheduler actor plans; empty while the control plane does."""
        return self._lease.holder(self._reactor.clock()) or ""

    # -- what happens
    def membership_changed(self) -> None:
        """Engines came or went; plan as soon as no more do."""
        self._stop_settling()
        wait_s = self._reactor.config.placement.interval_s * _SETTLING_INTERVALS
        self._settling = asyncio.get_running_loop().call_later(wait_s, self._settled)

    def forget(self, worker: str) -> None:
        """A worker leaves: whatever it had leased is free."""
        self._lease.release(worker)

    def tick(self) -> None:
        """Plan, if nobody else does and it is time."""
        interval_s = self._reactor.config.placement.interval_s
        if self._reactor.clock() - self._planned_at >= interval_s:
            self._plan_if_alone()

    async def close(self) -> None:
        """Give up waiting for engines to settle; end with the telemetry written."""
        self._stop_settling()
        await self._telemetry.close()

    # -- calls of scheduler actors
    async def lease(self, worker: str) -> dict[str, Any]:
        """Take or keep the job of planning, for a worker that can host the scheduler actor.

        Returns
        -------
        dict
            ``granted``; ``memberships``, a number that rises when engines have come or gone;
            ``interval_s``, seconds between two looks.
        """
        host = self._reactor.scheduler.workers.get(worker)
        stays = host is not None and host.status == Status.running
        granted = stays and self._lease.acquire(worker, self._reactor.clock())
        return {
            "granted": granted,
            "memberships": self._memberships,
            "interval_s": self._reactor.config.placement.interval_s,
        }

    async def snapshot(self) -> dict[str, Any]:
        """What a scheduler actor plans on.

        Returns
        -------
        dict
            ``snapshot``, a `ClusterSnapshot`; ``placement``, a `PlacementConfig`; ``models``,
            names of the models served. All plain.
        """
        return {
            "snapshot": self._snapshot().to_wire(),
            "placement": self._reactor.config.placement.model_dump(mode="json"),
            "models": list(self._models()),
        }

    async def publish(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Put a scheduler actor's plan in force.

        Returns
        -------
        dict
            ``accepted``: False for a plan that is not newer than the one in force.
        """
        decoded = PlacementPlan.from_wire(dict(plan))
        before = self._reactor.controller.plan.epoch
        self._publish(decoded)
        return {"accepted": self._reactor.controller.plan.epoch > before}

    # -- within
    def _stop_settling(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _settled(self) -> None:
        self._settling = None
        self._memberships += 1
        self._plan_if_alone()

    def _plan_if_alone(self) -> None:
        if self._lease.holder(self._reactor.clock()) is not None:
            return
        self._planned_at = self._reactor.clock()
        try:
            plan = self._planner.plan(
                self._reactor.config.placement, self._models(), self._snapshot()
            )
        except Exception:
            logger.exception("The placement policy failed; the plan in force stays")
            return
        if plan is not None:
            self._publish(plan)

    def _publish(self, plan: PlacementPlan) -> None:
        self._reactor.observe(PlanPublished(plan=plan))

    def _snapshot(self) -> ClusterSnapshot:
        snapshot = self._reactor.controller.snapshot(self._reactor.clock())
        self._telemetry.look(snapshot)
        return snapshot

    def _models(self) -> tuple[str, ...]:
        return tuple(card.name for card in self._reactor.cards.cards)
