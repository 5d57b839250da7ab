"""Keeps exactly one scheduler actor alive, on one of the workers that may host it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid

import distributed
from distributed import Status, WorkerPlugin

from elastic_dit.actors.scheduler_actor import SCHEDULER_ACTOR, SchedulerActor
from elastic_dit.cluster.launch.bootstrap import has_control
from elastic_dit.cluster.plain_errors import hide_known_tracebacks
from elastic_dit.cluster.plane.retirement import ACTOR_PREFIX

__all__ = ["ControlWorkerPlugin"]

logger = logging.getLogger(__name__)

_KNOCK_S = 0.5
"""Wait between two looks for a control plane that is not there yet, or does not answer, s."""
_TURNS_PER_INTERVAL = 8
"""Turns per placement interval: how soon a change of the engines is seen."""
_TURN_TIMEOUT_S = 10.0
"""Bound of one turn; a turn that is stuck renews no lease, so another worker takes over."""


class ControlWorkerPlugin(WorkerPlugin):  # type: ignore[misc]
    """For a worker without a GPU, such as the one of resource ``CONTROL`` on each machine.

    The workers with this plug-in compete for a lease of the control plane. The holder makes the
    `SchedulerActor` on itself, publishes it under `SCHEDULER_ACTOR`, and lets it look at every
    placement interval and soon after engines have come or gone. When the holder dies, retires or
    hangs, another takes over within three intervals.
    """

    name = "elastic-dit-control-worker"
    idempotent = True

    def __repr__(self) -> str:
        return f"<ControlWorkerPlugin {getattr(self, '_key', 'not started')}>"

    async def setup(self, worker: distributed.Worker) -> None:
        """Begin to compete."""
        hide_known_tracebacks()
        self._worker = worker
        self._client: distributed.Client | None = None
        self._future: distributed.Future | None = None
        self._key = ""
        self._is_heard = False
        self._seen_memberships = -1
        self._looked_at = self._asked_at = 0.0
        self._turning = asyncio.create_task(self._turn_for_ever())

    async def teardown(self, worker: distributed.Worker) -> None:  # noqa: ARG002
        """Stop; the actor goes with its worker."""
        self._turning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._turning
        if self._client is not None:
            await self._client.close()

    async def _turn_for_ever(self) -> None:
        while True:
            wait_s = _KNOCK_S
            try:
                async with asyncio.timeout(_TURN_TIMEOUT_S):
                    wait_s = await self._turn()
            except (OSError, TimeoutError) as error:
                logger.info("The control plane does not answer: %r", error)
            except Exception:
                logger.exception("A look at the placement failed")
            await asyncio.sleep(wait_s)

    async def _turn(self) -> float:
        """Compete, make the actor, let it look, as far as each is due; seconds to wait then."""
        scheduler = self._worker.scheduler
        # Asked once: Dask logs each such question.
        self._is_heard = self._is_heard or await has_control(scheduler)
        if self._worker.status != Status.running or not self._is_heard:
            return _KNOCK_S
        lease = await scheduler.elastic_dit_lease(worker=self._worker.address)
        interval_s: float = lease["interval_s"]
        if not lease["granted"]:
            self._release()
        elif self._actor is None:
            await self._make(interval_s)
        else:
            await self._look(lease["memberships"], interval_s)
        return interval_s / _TURNS_PER_INTERVAL

    @property
    def _actor(self) -> SchedulerActor | None:
        actor: SchedulerActor | None = self._worker.state.actors.get(self._key)
        return actor

    async def _look(self, memberships: int, interval_s: float) -> None:
        now = asyncio.get_running_loop().time()
        due = now - self._looked_at >= interval_s or memberships != self._seen_memberships
        if due and self._actor is not None:
            self._looked_at, self._seen_memberships = now, memberships
            # The very object, not a handle of it: a call of a handle may never return.
            await self._actor.look()

    async def _make(self, interval_s: float) -> None:
        """Ask for the actor, once per interval; Dask makes it on this very worker."""
        now = asyncio.get_running_loop().time()
        if self._future is not None and now - self._asked_at < interval_s:
            return
        self._asked_at = now
        if self._client is None:
            self._client = await distributed.Client(
                self._worker.scheduler.address,
                security=self._worker.security,
                asynchronous=True,
                set_as_default=False,
            )
        self._key = f"{ACTOR_PREFIX}scheduler-{uuid.uuid4().hex}"
        self._future = self._client.submit(
            SchedulerActor, key=self._key, actor=True, workers=[self._worker.address]
        )
        await self._client.publish_dataset(self._future, name=SCHEDULER_ACTOR, override=True)

    def _release(self) -> None:
        if self._future is not None:
            self._future.release()
            self._future = None
            self._key = ""
