"""Events in, commands out: the controller between what Dask tells and what Dask shall do."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.cards import CardBoard
from elastic_dit.cluster.plane.carrier import CommandCarrier
from elastic_dit.cluster.plane.directory import Directory
from elastic_dit.cluster.plane.feed import ProgressFeed
from elastic_dit.cluster.plane.keeper import RequestKeeper, check_journal
from elastic_dit.cluster.reports import Outcome, Report, topic_of, write_report
from elastic_dit.config import Config
from elastic_dit.control.controller import Controller
from elastic_dit.control.placement import make_placement
from elastic_dit.control.requests import RequestRecord
from elastic_dit.control.times import ExpectedTimes
from elastic_dit.errors import GenerationFailed, NotReady
from elastic_dit.events import (
    Cancelled,
    CancelRequested,
    Command,
    Complete,
    Event,
    Fail,
    ResultLost,
    StageDone,
    StartStage,
    Tick,
)
from elastic_dit.metrics.recorder import Recorder
from elastic_dit.request import Stage
from elastic_dit.rib import RibKeeper

__all__ = ["Reactor"]

logger = logging.getLogger(__name__)


class Reactor:
    """Feeds the controller, carries its commands out, and tells clients how far they are.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    config : Config
    clock : callable
        Seconds on a monotonic clock.

    Attributes
    ----------
    controller : Controller
    directory : Directory
    cards : CardBoard
    rib : RibKeeper
        The profile, kept in step with what is seen here.
    keeper : RequestKeeper or None
        What makes requests outlive the cluster, where that is configured.
    recorder : Recorder
        What has happened, in numbers.
    onlookers : list of callable
        Told of every event and what followed from it, as `Recorder.note` is; it is the first.
    is_settled : bool
        Whether somebody has brought the deployment's settings; until then nobody can say which
        requests an earlier life has left.
    checking : int
        Submissions that are being checked, or wait for the first engine.
    """

    def __init__(self, scheduler: Any, config: Config, clock: Callable[[], float]) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self._clock_to_wall = time.time() - clock()
        self.cards = CardBoard()
        self.checking = 0
        self.is_settled = True
        self.recorder = Recorder()
        self.onlookers: list[Callable[[Controller, Event, list[Command], float], None]] = [
            self.recorder.note
        ]
        self.configure(config)

    def __repr__(self) -> str:
        return f"<Reactor {self.controller!r} {self.directory!r}>"

    def configure(self, config: Config) -> None:
        """Start anew with other settings; only while there is neither engine nor request.

        Raises
        ------
        ConfigError
            Where a policy of that name is not known, or results would be kept where nobody
            knows how; then nothing changes.
        """
        make_placement(config.placement, ())
        check_journal(config.journal)
        rib = RibKeeper(config.control.profile, config.control.profile_interval_s)
        self.controller = Controller(
            config.control,
            times=ExpectedTimes(rib.observed, rib.times),
            observed=rib.observed,
            admission=config.admission,
            action_timeout_s=config.placement.action_timeout_s,
        )
        self.rib = rib
        self.config = config
        self.cards.configured = tuple(model.name for model in config.models)
        self.directory = Directory(config.control.slots_per_node)
        self.carrier = CommandCarrier(self.scheduler, self.directory)
        self.feed = ProgressFeed(self._send, config.control.progress_interval_s)
        self._held_back: dict[str, None] = {}
        self.keeper: RequestKeeper | None = None
        self.meet_at("")

    def open_journal(self) -> None:
        """Begin to read what an earlier life has left, where the settings name a journal."""
        if self.config.journal.path is not None:
            self.keeper = RequestKeeper(self, self.config.journal)

    @property
    def uses_groups(self) -> bool:
        """Whether the dispatch policy may want several GPUs for one request."""
        return getattr(self.controller.dispatch, "uses_groups", True)

    def meet_at(self, store: str) -> None:
        """Let groups form at the store at an address from now on; with ``""`` none can."""
        self.carrier.store = store
        self.controller.allowed.widest = None if store else 1

    def check_settled(self) -> None:
        """Refuse to speak of what may be in a journal that nobody has named yet.

        Raises
        ------
        NotReady
        """
        if not self.is_settled:
            raise NotReady("nobody has brought this cluster's settings: start elastic-dit-worker")

    @property
    def is_blank(self) -> bool:
        """Whether it has neither engines nor requests."""
        return not self.directory and not self.controller.table.live

    # -- events
    def observe(self, event: Event) -> None:
        """Let the controller react to an event.

        Never raises, since it is called from streams that an exception would end: a mistake ends
        the request that it is about, and goes into the log.
        """
        try:
            self._react(event)
            self._tell_progress()
        except Exception:
            logger.exception("Cannot tell what came of %s", event)
        self._stay_awake()

    def _react(self, event: Event) -> None:
        events = deque([event])
        while events:
            event = events.popleft()
            now = self.clock()
            commands = self._handle(event, now)
            for command in commands:
                try:
                    events.extend(self._carry(command))
                except Exception as error:
                    logger.exception("Cannot carry out %s", command)
                    self._break(request_id_of(command), error)
            self._free_unwanted(event, commands)
            self._tell_onlookers(event, commands, now)

    def tick(self) -> None:
        """Let time pass: deadlines, and places in line."""
        self.observe(Tick())
        if self.keeper is not None:
            self.keeper.tick(self.clock())
        for queue in self.controller.table.queues.values():
            for place, record in enumerate(queue):
                if self.feed.has_moved(record.request_id, place):
                    self._offer(record)

    def _stay_awake(self) -> None:
        # Dask sees no task running; without this an idle timeout would end the cluster.
        if self.controller.table.live or self.checking:
            self.scheduler.idle_since = None

    def _handle(self, event: Event, now: float) -> list[Command]:
        try:
            return self.controller.handle(event, now)
        except Exception as error:
            logger.exception("The controller cannot handle %s", event)
            self._break(request_id_of(event), error)
            if isinstance(event, CancelRequested) or request_id_of(event) is None:
                return []
            reason = f"internal error: {type(error).__name__}: {error}"
            return self._handle(
                CancelRequested(request_id=str(request_id_of(event)), reason=reason), now
            )

    def _tell_onlookers(self, event: Event, commands: list[Command], now: float) -> None:
        for note in self.onlookers:
            try:
                note(self.controller, event, commands, now)
            except Exception:
                logger.exception("An onlooker cannot take note of %s", event)

    def _carry(self, command: Command) -> Iterator[Event]:
        if isinstance(command, Complete) and not self.carrier.holds(command.result):
            yield ResultLost(request_id=command.request_id)
            return
        if self.keeper is not None and isinstance(command, Complete | Fail | Cancelled):
            self.keeper.end(command)
            return
        if self.keeper is not None and isinstance(command, StartStage):
            self.keeper.begin(command)
        self.conclude(command)

    def conclude(self, command: Command) -> bool:
        """Carry a command out, and tell clients if it is an end.

        Returns
        -------
        bool
            False where a result cannot be given: its worker is gone.
        """
        is_held = not isinstance(command, Complete) or self.carrier.holds(command.result)
        if isinstance(command, Complete | Fail | Cancelled):
            self._tell_end(command.request_id)
        if is_held:
            self.carrier.carry(command)
        return is_held

    def result_lost(self, request_id: str) -> None:
        """A result that was given went with its worker while clients wait for it."""
        if self.keeper is not None:
            self.keeper.result_lost(request_id)
        else:
            self.observe(ResultLost(request_id=request_id))

    def wall_clock(self, at: float) -> float:
        """A time on the control plane's clock as seconds since the epoch."""
        return at + self._clock_to_wall

    def _free_unwanted(self, event: Event, commands: list[Command]) -> None:
        """A decoder puts its result on its worker before it says so; not every result is taken."""
        if not isinstance(event, StageDone) or event.stage is not Stage.DECODER:
            return
        if not any(isinstance(command, Complete) for command in commands):
            self.carrier.free(event.output)

    def _break(self, request_id: str | None, error: Exception) -> None:
        if request_id is not None:
            failed = GenerationFailed(request_id, "control", type(error).__name__, str(error))
            futures.fail(self.scheduler, request_id, failed)

    # -- reports
    def report(self, request_id: str) -> Report | None:
        """Where a request stands; None if it is not known, or no longer."""
        record = self.controller.table.get(request_id)
        if record is None:
            return None
        now = self.clock()
        progress = self.controller.progress(request_id, now, at=self.wall_clock(now))
        return None if progress is None else Report(progress=progress, outcome=_outcome(record))

    def _tell_progress(self) -> None:
        now = self.clock()
        for request_id in (*self._held_back, *self.controller.take_changed()):
            record = self.controller.table.live.get(request_id)
            if record is None:
                self._held_back.pop(request_id, None)
            elif self.feed.is_due(request_id, (record.phase, record.attempt), now):
                self._held_back.pop(request_id, None)
                self._offer(record)
            else:
                self._held_back[request_id] = None

    def _offer(self, record: RequestRecord) -> None:
        report = self.report(record.request_id)
        if report is not None:
            clients = futures.wanted_by(self.scheduler, record.request_id)
            self.feed.offer(report.progress, clients, self.clock())

    def _tell_end(self, request_id: str) -> None:
        report = self.report(request_id)
        if report is not None and report.outcome is not None:
            clients = futures.wanted_by(self.scheduler, request_id)
            self.feed.end(report.progress, report.outcome, clients)

    def _send(self, report: Report, clients: Iterable[str]) -> None:
        wire = write_report(report)
        for client in clients:
            self.scheduler.log_event(topic_of(client), wire)


def request_id_of(message: Event | Command) -> str | None:
    """The request an event or a command is about, if it is about one."""
    request = getattr(message, "request", None)
    found = getattr(message, "request_id", None) if request is None else request.request_id
    return None if found is None else str(found)


def _outcome(record: RequestRecord) -> Outcome | None:
    """How a request ended; None while it lives."""
    if not record.phase.is_terminal:
        return None
    return Outcome(
        request_id=record.request_id,
        phase=record.phase,
        records=tuple(record.records),
        attempts=record.attempt,
        reason=str(record.failures[-1]) if record.failures else "",
    )
