"""What ``elastic-dit profile`` asks of the control plane: requests at a given degree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_dit.cluster.plane.desk import RequestDesk
from elastic_dit.cluster.plane.reactor import Reactor
from elastic_dit.cluster.refusals import refusals_as_data
from elastic_dit.control.groups import largest_block
from elastic_dit.errors import InvalidRequest
from elastic_dit.request import GenerationRequest, Stage, StageKey

__all__ = ["MeasuringDesk"]


class MeasuringDesk:
    """Tells at which degrees a request can run, and lets some run at one of them.

    Parameters
    ----------
    reactor : Reactor
    desk : RequestDesk
    """

    def __init__(self, reactor: Reactor, desk: RequestDesk) -> None:
        self._reactor = reactor
        self._desk = desk

    def __repr__(self) -> str:
        return f"<MeasuringDesk {self._reactor.controller.forced}>"

    @refusals_as_data
    async def degrees(self, request: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """At which degrees a request could run now, on GPUs of a kind.

        Parameters
        ----------
        request : mapping
            A whole `GenerationRequest`; an input picture may be a mention of one.
        kind : str
            GPU kind.

        Returns
        -------
        dict
            ``dops``, rising; ``gpus``, how many of the kind hold the model's transformer;
            ``software`` that runs there, every version of it.
        """
        parsed = GenerationRequest.parse(**request)
        dops = await self._desk.allowed_dops(parsed)
        controller = self._reactor.controller
        serving = controller.pool.serving(StageKey(parsed.model, Stage.DIT))
        gpus = {gpu for gpu in serving if controller.pool[gpu].kind == kind}
        members = self._reactor.directory.members
        software = {member.hello.software for member in members if member.gpu in gpus}
        widest = len(largest_block(gpus)) if gpus else 0
        if controller.allowed.widest is not None:
            widest = min(widest, controller.allowed.widest)
        return {
            "dops": [dop for dop in dops if dop <= widest],
            "gpus": len(gpus),
            "software": " / ".join(sorted(software)),
        }

    @refusals_as_data
    async def force(self, request_ids: list[str], dop: int, kind: str) -> dict[str, Any]:
        """Let requests that are about to come run at a degree, all others waiting meanwhile.

        Raises
        ------
        InvalidRequest
            Where no GPU is of that kind.
        """
        controller = self._reactor.controller
        kinds = sorted({gpu.kind for gpu in controller.pool})
        if kind not in kinds:
            raise InvalidRequest("kind", kind, f"one of {', '.join(kinds) or 'no GPU is here'}")
        for request_id in request_ids:
            controller.forced.announce(request_id, dop, kind, self._reactor.clock())
        return {}
