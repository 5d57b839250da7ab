"""Carries the controller's commands out over Dask."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from elastic_dit.cluster.messages import COMMAND_OP, encode
from elastic_dit.cluster.plane import futures
from elastic_dit.cluster.plane.directory import Directory
from elastic_dit.cluster.plane.restarts import Restarts
from elastic_dit.errors import GenerationFailed
from elastic_dit.events import (
    Abort,
    AskNodes,
    Cancelled,
    Command,
    Complete,
    DropStage,
    Fail,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    ReleaseNode,
    Replicate,
    Resize,
    RestartEngine,
    StartStage,
)
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, GpuId

__all__ = ["CommandCarrier"]

logger = logging.getLogger(__name__)

_LONGEST_MESSAGE = 4_000
"""Characters of an engine's error that reach the client; Dask would replace a longer one."""


class CommandCarrier:
    """Sends commands to engines, and ends to the clients' futures.

    Attributes
    ----------
    nodes_wanted : int or None
        Machines that the placement policy wants in all, for whoever can get them.
    store : str
        ``host:port`` of the store on which groups meet; empty where none can form.
    restarts : Restarts
        Of engines that hang.
    when_over : callable
        Called with the id of each request that ends and had a group.
    """

    def __init__(self, scheduler: Any, directory: Directory) -> None:
        self._scheduler = scheduler
        self._directory = directory
        self.nodes_wanted: int | None = None
        self.store = ""
        self.restarts = Restarts(scheduler)
        self.when_over: Callable[[str], None] = _nothing
        self._grouped: set[str] = set()

    def __repr__(self) -> str:
        return f"<CommandCarrier to {len(self._directory)} engines>"

    def carry(self, command: Command) -> None:
        """Carry one command out. A result's worker must be there (see `holds`)."""
        self._note_groups(command)
        match command:
            case Complete():
                self._complete(command)
            case Fail():
                futures.fail(self._scheduler, command.request_id, _failed(command))
            case Cancelled():
                futures.withdraw(self._scheduler, command.request_id, command.reason)
            case AskNodes():
                self.nodes_wanted = command.count
            case ReleaseNode():
                # Whoever can close machines asks for those that are drained: `MachineDesk`.
                logger.info("%s is drained and can be given back: %s", command.node, command.reason)
            case RestartEngine():
                self._restart(command)
            case _:
                self._tell_engines(command)

    def _note_groups(self, command: Command) -> None:
        """Remember who has a group, until the request ends."""
        match command:
            case StartStage() if len(command.gpus) > 1:
                self._grouped.add(command.request.request_id)
            case Resize():
                self._grouped.add(command.request_id)
            case Complete() | Fail() | Cancelled() if command.request_id in self._grouped:
                self._grouped.remove(command.request_id)
                self.when_over(command.request_id)

    def holds(self, result: ArtifactRef) -> bool:
        """Whether the worker that holds a result is still there."""
        return self._directory.address(result.gpu) in self._scheduler.workers

    def free(self, result: ArtifactRef) -> None:
        """Free a result that nobody takes."""
        address = self._directory.address(result.gpu)
        if address is not None:
            futures.discard(self._scheduler, result.request_id, address)

    def _complete(self, command: Complete) -> None:
        result, address = command.result, self._directory.address(command.result.gpu)
        if address is not None and futures.is_expected(self._scheduler, command.request_id):
            futures.deliver(self._scheduler, command.request_id, address, result.nbytes)
        else:
            self.free(result)
        # From here on the value lives as a Dask result; the engine's own copy may go.
        self._tell_engines(Release(artifact=result))

    def _restart(self, command: RestartEngine) -> None:
        """Strike an engine at once; end its process unless it turns out to be dead anyway."""
        address = self._directory.address(command.gpu)
        if address is not None:
            logger.warning("GPU %d at %s: %s", command.gpu, address, command.reason)
            self._directory.leave(address)
            self.restarts.begin(address)

    def _tell_engines(self, command: Command) -> None:
        addresses = {
            gpu: address
            for gpu in mentioned(command)
            if (address := self._directory.address(gpu)) is not None
        }
        message = {
            "op": COMMAND_OP,
            "command": encode(command),
            "addresses": {str(gpu): address for gpu, address in addresses.items()},
            "store": self.store,
        }
        for gpu in recipients(command):
            if gpu in addresses:  # else it has just left, which the controller hears or has heard
                self._scheduler.worker_send(addresses[gpu], message)


def recipients(command: Command) -> tuple[GpuId, ...]:
    """GPUs whose engines a command is for.

    >>> recipients(LoadStage(gpu=3, model="shapes", stage=Stage.DIT, plan_epoch=1))
    (3,)
    """
    match command:
        case Resize():
            return tuple(sorted({*command.gpus, *command.present}))
        case StartStage(stage=Stage.ENCODER | Stage.DECODER):
            return command.gpus[:1]  # the others of a coupled unit are kept for it, and idle
        case StartStage() | Preempt() | Abort():
            return command.gpus
        case Prefetch() | Replicate() | LoadStage() | DropStage():
            return (command.gpu,)
        case Release():
            return (command.artifact.gpu,)
    return ()


def mentioned(command: Command) -> tuple[GpuId, ...]:
    """GPUs whose addresses a command's recipients need."""
    match command:
        case StartStage() | Prefetch():
            return (*recipients(command), *(ref.gpu for ref in command.inputs))
        case Replicate():
            return (command.gpu, command.artifact.gpu)
    return recipients(command)


def _failed(command: Fail) -> GenerationFailed:
    failure = command.failure
    message = failure.message
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}…"
    return GenerationFailed(
        command.request_id, str(failure.stage), failure.error_type, message, command.attempts
    )


def _nothing(_: str) -> None:
    """Nobody wants to know."""
