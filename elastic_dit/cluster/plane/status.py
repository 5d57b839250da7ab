"""What a running cluster tells of itself: the data behind ``elastic-dit status``."""

from __future__ import annotations

from typing import Any

from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.control.decisions import Decision
from elastic_dit.control.gpus import Gpu
from elastic_dit.control.requests import RequestRecord
from elastic_dit.control.told import told_of
from elastic_dit.request import StageKey

__all__ = ["status_of"]


def status_of(reactor: Reactor, planner: str = "") -> dict[str, Any]:
    """Requests, queues, GPUs and decisions as plain JSON-able data.

    Parameters
    ----------
    reactor : Reactor
    planner : str
        Address of the worker that plans placements.

    Returns
    -------
    dict
        ``now``
            Seconds on the control plane's clock, to which all other times refer.
        ``requests[]``
            Live ones in order of acceptance, then those that ended lately: ``request_id``,
            ``model``, ``width``, ``height``, ``num_frames``, ``phase``, ``step``,
            ``total_steps``, ``dop``, ``gpus``, ``queue_position``, ``eta_s``, ``attempt``,
            ``accepted_at``, ``finished_at``.
        ``queues[]``
            ``model``, ``stage``, ``waiting``, ``oldest_wait_s``.
        ``gpus[]``
            ``gpu``, ``name``, ``address``, ``node``, ``kind``, ``memory_bytes``, ``resident``,
            ``loading``, ``failed``, ``request_id``, ``stage``, ``busy_s``.
        ``ended``
            Number of requests by the way they ended.
        ``models``
            Names of the models served, the default first.
        ``plan``
            Placement plan in force: ``epoch``, ``residency``, ``reason``.
        ``planner``
            Address of the worker whose scheduler actor makes the plans; empty where the control
            plane does.
        ``decisions[]``
            Latest last: ``at``, ``what``, ``subject``, ``gpus``, ``reason``.
        ``moves[]``
            The same of what changes slowly (`elastic_dit.control.decisions.PLACEMENT`): plans,
            loads and drops done, engines and machines that came and went.
        ``machines[]``
            ``machine``, ``gpus``, ``departure``: None, or how far it is on its way out
            (`elastic_dit.control.departures.Departure`).
        ``nodes_wanted``
            Machines the placement policy asks for in all, None if it does not care.
    """
    controller = reactor.controller
    now = reactor.clock()
    table = controller.table
    records = (*table.live.values(), *table.finished.values())
    return {
        "now": now,
        "requests": [_request(reactor, record, now) for record in records],
        "queues": [
            {
                **_stage(key),
                "waiting": len(queue),
                "oldest_wait_s": max((now - r.waiting_since for r in queue), default=0.0),
            }
            for key, queue in table.queues.items()
        ],
        "gpus": [_gpu(reactor, gpu, now) for gpu in sorted(controller.pool, key=_number)],
        "ended": {str(phase): count for phase, count in table.ended.items()},
        "models": [card.name for card in reactor.cards.cards],
        "plan": controller.plan.to_wire(),
        "planner": planner,
        "decisions": [_decision(decision) for decision in controller.decisions],
        "moves": [_decision(decision) for decision in controller.decisions.placement],
        "machines": [
            {
                "machine": node,
                "gpus": sorted(controller.pool.node(node)),
                "departure": controller.departures.get(node),
            }
            for node in sorted(controller.pool.nodes)
        ],
        "nodes_wanted": reactor.carrier.nodes_wanted,
    }


def _request(reactor: Reactor, record: RequestRecord, now: float) -> dict[str, Any]:
    return {
        **told_of(reactor.controller, record, now),
        "accepted_at": record.accepted_at,
        "finished_at": record.finished_at,
    }


def _gpu(reactor: Reactor, gpu: Gpu, now: float) -> dict[str, Any]:
    group = gpu.group
    return {
        "gpu": gpu.gpu,
        "name": gpu.name,
        "address": reactor.directory.address(gpu.gpu),
        "node": gpu.node,
        "kind": gpu.kind,
        "memory_bytes": gpu.memory_bytes,
        "resident": [_stage(key) for key in sorted(gpu.resident)],
        "loading": [_stage(key) for key in sorted(gpu.loading)],
        "failed": [{**_stage(key), "cause": cause} for key, cause in gpu.failed.items()],
        "request_id": group.request_id if group else None,
        "stage": str(group.stage) if group else None,
        "busy_s": gpu.busy_total_s(now),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "at": decision.at,
        "what": decision.what,
        "subject": decision.subject,
        "gpus": list(decision.gpus),
        "reason": decision.reason,
    }


def _stage(key: StageKey) -> dict[str, str]:
    return {"model": key.model, "stage": str(key.stage)}


def _number(gpu: Gpu) -> int:
    return gpu.gpu
