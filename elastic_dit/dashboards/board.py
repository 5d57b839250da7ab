"""How a cluster is at one moment, as plain rows: what the page shows and its JSON twin says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from elastic_dit.control.controller import Controller
from elastic_dit.control.gpus import Gpu
from elastic_dit.control.requests import RequestRecord
from elastic_dit.control.told import told_of
from elastic_dit.dashboards.history import WINDOW_S, History
from elastic_dit.dashboards.lanes import Span
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import Phase

__all__ = ["Board", "Row", "build_board", "span_row"]

REQUESTS_SHOWN = 500
"""Live requests that are listed; the summary counts all."""
DECISIONS_SHOWN = 60
"""Latest decisions that are listed."""

Row = dict[str, Any]
"""Fields of one line, all JSON-able."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Rows of JSON-able data; every time is seconds since the epoch, every duration seconds.

    Attributes
    ----------
    at : float
        When this was so.
    window_s : float
        How far back `queues`, `spans` and `marks` go.
    summary : dict
        ``gpus``, ``busy``, ``running``, ``waiting``, ``completed``, ``failed``, ``cancelled``,
        ``per_minute``, ``plan_epoch``, ``plan_reason``, ``dispatch``, ``spans_ended`` (spans that
        ever ended).
    queues : list of dict
        ``at``, and requests waiting for ``encoder``, ``dit``, ``decoder``; the oldest first.
    gpus : list of dict
        By number: ``gpu``, ``name``, ``node``, ``kind``, ``memory_bytes``, ``weights_bytes`` (of
        the stages it holds, as far as measured), ``resident``, ``loading``, ``failed`` (lists of
        ``model/stage``), ``request_id``, ``stage``, ``dop``, ``target_dop`` (of a resize
        that was ordered; 0 without one), ``step``, ``total_steps``, ``utilisation`` (0 to 1),
        ``retiring``.
    requests : list of dict
        Those running, then those waiting, the first in line first: ``request_id``, ``model``,
        ``width``, ``height``, ``num_frames``, ``phase``, ``step``, ``total_steps``, ``dop``,
        ``gpus``, ``place`` (-1 while it runs), ``eta_s`` (None while not known), ``age_s``,
        ``attempt``.
    ratio : list of dict
        One per stage: GPUs ``predicted`` to be best for the latest arrivals (None while unknown),
        ``planned`` by the placement plan, ``loaded``, and ``working``.
    decisions, failures : list of dict
        ``at``, ``what``, ``subject``, ``gpus``, ``reason``; the latest first.
    spans : list of dict
        ``gpu``, ``request_id``, ``model``, ``stage``, ``dop``, ``attempt``, ``start``, ``end``
        (None of one that goes on).
    marks : list of dict
        Promotions and demotions: ``at``, ``gpu``, ``request_id``, ``before``, ``after``.
    """

    at: float
    window_s: float
    summary: Row
    queues: list[Row]
    gpus: list[Row]
    requests: list[Row]
    ratio: list[Row]
    decisions: list[Row]
    failures: list[Row]
    spans: list[Row]
    marks: list[Row]

    def __repr__(self) -> str:
        return f"<Board {len(self.gpus)} GPUs, {len(self.requests)} requests>"

    def to_json(self) -> dict[str, Any]:
        """All of it under the names of the attributes."""
        return {name: getattr(self, name) for name in self.__slots__}


def build_board(controller: Controller, history: History, now: float, to_wall: float) -> Board:
    """Look at everything.

    Parameters
    ----------
    controller : Controller
    history : History
    now : float
        Seconds on the controller's clock.
    to_wall : float
        What to add to that clock for seconds since the epoch.

    Returns
    -------
    Board
        In O(GPUs + requests shown + what the rings hold).
    """
    since = now - WINDOW_S
    groups = {group.request_id for stage in Stage for group in controller.groups.working(stage)}
    return Board(
        at=now + to_wall,
        window_s=WINDOW_S,
        summary=_summary(controller, history, len(groups), now),
        queues=[
            _sample(sample.at + to_wall, sample.waiting)
            for sample in history.samples
            if sample.at >= since
        ],
        gpus=[_gpu(controller, history, gpu, now) for gpu in sorted(controller.pool, key=_number)],
        requests=_requests(controller, now),
        ratio=_ratio(controller, history),
        decisions=[_told(each, to_wall) for each in _latest(controller.decisions)],
        failures=[_told(each, to_wall) for each in reversed(history.troubles)],
        spans=[
            span_row(span, to_wall)
            for span in (*history.lanes.spans_since(0), *history.lanes.open)
            if span.end >= since
        ],
        marks=[
            {**asdict(mark), "at": mark.at + to_wall}
            for mark in history.lanes.marks
            if mark.at >= since
        ],
    )


def span_row(span: Span, to_wall: float) -> Row:
    """A span as a row of the timeline."""
    goes_on = span.end == float("inf")
    return {
        "gpu": span.gpu,
        "request_id": span.request_id,
        "model": span.model,
        "stage": str(span.stage),
        "dop": span.dop,
        "attempt": span.attempt,
        "start": span.start + to_wall,
        "end": None if goes_on else span.end + to_wall,
    }


def _summary(controller: Controller, history: History, running: int, now: float) -> Row:
    table, plan = controller.table, controller.plan
    return {
        "gpus": len(controller.pool),
        "busy": sum(1 for gpu in controller.pool if gpu.group is not None),
        "running": running,
        "waiting": table.waiting,
        "completed": table.ended[Phase.COMPLETED],
        "failed": table.ended[Phase.FAILED],
        "cancelled": table.ended[Phase.CANCELLED],
        "per_minute": history.per_minute(now),
        "plan_epoch": plan.epoch,
        "plan_reason": plan.reason,
        "dispatch": controller.config.dispatch,
        "spans_ended": history.lanes.ended,
    }


def _sample(at: float, waiting: Sequence[int]) -> Row:
    return {"at": at, **{str(s): n for s, n in zip(Stage, waiting, strict=True)}}


def _gpu(controller: Controller, history: History, gpu: Gpu, now: float) -> Row:
    group = gpu.group
    return {
        "gpu": gpu.gpu,
        "name": gpu.name,
        "node": gpu.node,
        "kind": gpu.kind,
        "memory_bytes": gpu.memory_bytes,
        "weights_bytes": sum(history.weights_bytes.get(key, 0) for key in gpu.resident),
        "resident": _names(gpu.resident),
        "loading": _names(gpu.loading),
        "failed": _names(gpu.failed),
        "request_id": group.request_id if group else None,
        "stage": str(group.stage) if group else None,
        "dop": group.dop if group else 0,
        "target_dop": len(group.target) if group else 0,
        "step": group.step if group else 0,
        "total_steps": group.total_steps if group else 0,
        "utilisation": gpu.utilisation(now, controller.config.window_s),
        "retiring": gpu.retiring,
    }


def _requests(controller: Controller, now: float) -> list[Row]:
    table = controller.table
    running = [record for record in table.live.values() if record.group is not None]
    waiting = (record for queue in _last_stage_first(controller) for record in queue)
    shown = islice((*running, *waiting), REQUESTS_SHOWN)
    return [_request(controller, record, now) for record in shown]


def _last_stage_first(controller: Controller) -> Iterable[Iterable[RequestRecord]]:
    queues = controller.table.queues
    return [queues[key] for key in sorted(queues, key=_nearness)]


def _nearness(key: StageKey) -> tuple[int, str]:
    return (-tuple(Stage).index(key.stage), key.model)


def _request(controller: Controller, record: RequestRecord, now: float) -> Row:
    told = told_of(controller, record, now)
    place = told.pop("queue_position")
    return {
        **told,
        "place": place if record.phase.is_waiting else -1,
        "age_s": now - record.accepted_at,
    }


def _ratio(controller: Controller, history: History) -> list[Row]:
    pool = controller.pool
    loaded = _holders(gpu.resident for gpu in pool)
    planned = _holders(controller.plan.residency.values())
    working = Counter(gpu.group.stage for gpu in pool if gpu.group is not None)
    predicted = history.predicted
    return [
        {
            "stage": str(stage),
            "predicted": None if predicted is None else predicted.get(stage, 0),
            "planned": planned[stage],
            "loaded": loaded[stage],
            "working": working[stage],
        }
        for stage in Stage
    ]


def _holders(sets: Iterable[Iterable[StageKey]]) -> Counter[Stage]:
    """On how many GPUs each stage is, of whatever model."""
    return Counter(stage for keys in sets for stage in {key.stage for key in keys})


def _latest(log: Iterable[Any]) -> list[Any]:
    return list(log)[: -DECISIONS_SHOWN - 1 : -1]


def _told(each: Any, to_wall: float) -> Row:
    return {
        "at": each.at + to_wall,
        "what": each.what,
        "subject": each.subject,
        "gpus": list(each.gpus),
        "reason": each.reason,
    }


def _names(keys: Iterable[StageKey]) -> list[str]:
    return [f"{key.model}/{key.stage}" for key in sorted(keys)]


def _number(gpu: Gpu) -> int:
    return gpu.gpu
