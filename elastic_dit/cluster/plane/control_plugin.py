"""The control plane inside the Dask scheduler.

It hears of a worker's death within milliseconds, has an ordered stream to every worker, and lives
exactly as long as the cluster. It decides nothing itself: what it observes goes as events into
`elastic_dit.control.controller.Controller`, and the commands that come back are carried out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed.comm import get_address_host
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from elastic_dit.cluster.launch.exposure import warn_if_exposed
from elastic_dit.cluster.messages import EVENT_OP, FENCE_OP, HELLO_OP, WELCOME_OP, decode_event
from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.archive import Archive
from elastic_dit.cluster.plane.custody import Custody, lost_keys
from elastic_dit.cluster.plane.desk import RequestDesk
from elastic_dit.cluster.plane.directory import Hello, Member
from elastic_dit.cluster.plane.forgetting import Forgetting
from elastic_dit.cluster.plane.machine_desk import MachineDesk
from elastic_dit.cluster.plane.measuring import MeasuringDesk
from elastic_dit.cluster.plane.metrics_desk import MetricsDesk
from elastic_dit.cluster.plane.planning import Planning
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.plane.retirement import (
    announces_retirement,
    closes_in_order,
    release_actors,
    retired_worker,
)
from elastic_dit.cluster.plane.status import status_of
from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.cluster.reports import topic_of
from elastic_dit.config import Config
from elastic_dit.dashboards.desk import DashboardDesk
from elastic_dit.dashboards.page import show_on
from elastic_dit.errors import ElasticDitError
from elastic_dit.events import EngineLost

__all__ = ["ControlPlugin"]

logger = logging.getLogger(__name__)


class ControlPlugin(SchedulerPlugin):  # type: ignore[misc]
    """Registered on the Dask scheduler under the name ``elastic-dit-control``.

    Parameters
    ----------
    config : Config
        Settings of the deployment; engines get them with their welcome.
    provisional : bool
        Whether `config` is only a default, which holds until somebody brings one.
    clock : callable
        Seconds on a monotonic clock; must pickle by reference.
    """

    name = "elastic-dit-control"
    idempotent = True

    reactor: Reactor
    desk: RequestDesk
    archive: Archive
    planning: Planning
    custody: Custody
    dashboard: DashboardDesk

    def __init__(
        self,
        config: Config,
        *,
        provisional: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._provisional = provisional
        self._clock = clock
        self._retired: str | None = None

    def __repr__(self) -> str:
        return f"<ControlPlugin {getattr(self, 'reactor', 'not started')}>"

    async def start(self, scheduler: Any) -> None:
        """Open for business. Does not wait, so two registrations at once cannot interleave."""
        self._scheduler = scheduler
        warn_if_exposed(
            "The Dask scheduler", [listener.listen_address for listener in scheduler.listeners]
        )
        self.reactor = Reactor(scheduler, self._config, self._clock)
        self.reactor.is_settled = not self._provisional
        self.desk = RequestDesk(self.reactor)
        self.archive = Archive(self.reactor)
        self.planning = Planning(self.reactor)
        machines = MachineDesk(self.reactor)
        measuring = MeasuringDesk(self.reactor, self.desk)
        self.custody = Custody(self.reactor)
        metrics = MetricsDesk(self.reactor)
        metrics.show_on(scheduler)
        self.dashboard = DashboardDesk(self.reactor)
        self.reactor.onlookers.append(self.dashboard.note)
        show_on(scheduler, self.dashboard)
        self._store = StoreHost(get_address_host(scheduler.address), self._meet_at)
        self._open_store()
        scheduler.handlers.update(
            elastic_dit_submit=metrics.counted(self.desk.submit),
            elastic_dit_cancel=self.desk.cancel,
            elastic_dit_outcome=self.desk.outcome,
            elastic_dit_join=self.desk.join,
            elastic_dit_requests=self.archive.requests,
            elastic_dit_status_of=self.archive.status_of,
            elastic_dit_models=self.desk.models,
            elastic_dit_forget=Forgetting(self.reactor, self.desk).forget,
            elastic_dit_metrics=metrics.metrics,
            elastic_dit_status=self.status,
            elastic_dit_configure=self.configure,
            elastic_dit_degrees=measuring.degrees,
            elastic_dit_force=measuring.force,
            elastic_dit_machines=machines.machines,
            elastic_dit_give_back=machines.give_back,
            elastic_dit_snapshot=self.planning.snapshot,
            elastic_dit_publish_plan=self.planning.publish,
            elastic_dit_lease=self.planning.lease,
        )
        scheduler.stream_handlers.update(
            {HELLO_OP: self.hello, EVENT_OP: self.event, FENCE_OP: self.desk.fences.passed}
        )
        self._ticking = PeriodicCallback(self._tick, self._config.control.tick_s * 1000)
        self._ticking.start()
        self.reactor.rib.open()
        self.reactor.open_journal()

    async def before_close(self) -> None:
        """The cluster goes down: see `suspend`."""
        self.suspend()

    def suspend(self) -> None:
        """Say that the cluster goes down: with a journal, what ends from now on runs again."""
        if self.reactor.keeper is not None:
            self.reactor.keeper.suspend()

    async def close(self) -> None:
        """Stop ticking."""
        self._ticking.stop()
        await self.reactor.rib.close()
        if self.reactor.keeper is not None:
            await self.reactor.keeper.close()
        await self.planning.close()
        await self._store.close()
        await self.reactor.carrier.restarts.close()

    # -- calls
    async def status(self) -> dict[str, Any]:
        """Requests, queues and GPUs as plain data.

        Returns
        -------
        dict
            See `elastic_dit.cluster.plane.status.status_of`.
        """
        return status_of(self.reactor, self.planning.planner)

    async def configure(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Take the settings of the first who brings some; those of clients are their own affair.

        Returns
        -------
        dict
            ``adopted``: False where others are in force already.
        """
        wanted = Config.parse(config)
        if _of_deployment(wanted) == _of_deployment(self.reactor.config):
            self._provisional, self.reactor.is_settled = False, True
            await self._journal_ready()
            return {"adopted": True}
        if not self._provisional or not self.reactor.is_blank:
            logger.warning("Other settings are in force already; those just brought are ignored")
            return {"adopted": False}
        self.reactor.configure(wanted)
        self.planning.configure()
        self._open_store()
        self.reactor.rib.open()
        self.reactor.open_journal()
        self._provisional, self.reactor.is_settled = False, True
        self._ticking.callback_time = wanted.control.tick_s * 1000
        await self._journal_ready()
        return {"adopted": True}

    async def _journal_ready(self) -> None:
        """Whoever brings settings hears at once of a journal that cannot be opened."""
        if self.reactor.keeper is not None:
            await self.reactor.keeper.ready()

    # -- streams: an exception here would end the worker's connection
    def hello(self, worker: str, engine: Mapping[str, Any]) -> None:
        """An engine introduces itself, once more if it was not answered yet."""
        try:
            hello = Hello.read(engine)
        except ElasticDitError as error:
            logger.warning("Worker %s: %s", worker, error)
            return
        directory = self.reactor.directory
        member = directory.at(worker)
        is_known = member is not None and member.hello.instance == hello.instance
        if member is None or not is_known:
            for former in (member, directory.named(hello.name)):
                self._lose(former, "another process took its place")
            member = directory.join(hello, worker)
        self._welcome(member)
        if not is_known:
            self.reactor.cards.add(hello.models)
            self.reactor.observe(member.joined())
            self.planning.membership_changed()

    def event(self, worker: str, event: dict[str, Any]) -> None:
        """An engine reports."""
        try:
            decoded = decode_event(event)
        except Exception:
            logger.exception("Worker %s sent what is not an event: %s", worker, event)
            return
        self.reactor.observe(decoded)

    # -- what Dask tells its plug-ins
    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        """A worker is gone; unless it has retired or said before that it closes, it died."""
        self.planning.forget(worker)
        retired, self._retired = self._retired, None
        if worker == retired:
            self._leave(worker)
        else:
            self._lose(self.reactor.directory.at(worker), "its worker is gone")

    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client left; Dask has dropped its keys already."""
        futures.forget_topic(scheduler, topic_of(client), client)
        self.desk.fences.forget(client)

    def transition(self, key: Any, _start: str, finish: str, *_: Any, **__: Any) -> None:
        """A key changed state; one that is forgotten may be a request's."""
        if finish == "forgotten":
            self.custody.forgotten(key)

    def log_event(self, topic: str, msg: Any) -> None:
        """Dask says what happens to workers."""
        if topic == "all":
            self.custody.lost(lost_keys(msg))
            # In the midst of Dask's own transitions, right before `remove_worker`.
            self._retired = retired_worker(msg) or self._retired
        elif closes_in_order(msg):
            # Before its engine has stopped: others need not find out that it answers no more.
            self._leave(topic)
        elif announces_retirement(msg):
            self.planning.forget(topic)
            release_actors(self._scheduler, topic)

    # -- within
    def _open_store(self) -> None:
        if self.reactor.uses_groups:
            self._store.open()
        self.reactor.meet_at(self._store.address)
        self.reactor.carrier.when_over = self._store.forget

    def _meet_at(self, address: str) -> None:
        self.reactor.meet_at(address)
        self.reactor.tick()

    def _tick(self) -> None:
        self.reactor.tick()
        self.reactor.rib.tick(self._clock())
        self.planning.tick()
        self.dashboard.tick()

    def _leave(self, worker: str) -> None:
        member = self.reactor.directory.at(worker)
        self._lose(member, "its worker left the cluster", expected=True)

    def _lose(self, member: Member | None, reason: str, *, expected: bool = False) -> None:
        if member is None:
            return
        gpu = self.reactor.directory.leave(member.address)
        if gpu is not None:
            self.reactor.observe(EngineLost(gpu=gpu, reason=reason, expected=expected))
            self.planning.membership_changed()

    def _welcome(self, member: Member) -> None:
        config = self.reactor.config.model_dump(mode="json")
        welcome = {"op": WELCOME_OP, "gpu": member.gpu, "config": config}
        self._scheduler.worker_send(member.address, welcome)

    def _to_dict(self, **_: Any) -> dict[str, Any]:
        """For Dask's cluster dumps."""
        return status_of(self.reactor, self.planning.planner)


def _of_deployment(config: Config) -> dict[str, Any]:
    return config.model_dump(exclude={"client", "http"})
