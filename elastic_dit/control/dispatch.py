"""The fast decision: which GPUs run a request's present stage, and how many.

A policy is one class with `plan`, registered under the name that `ControlConfig.dispatch` uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from elastic_dit.control import actions
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = [
    "STAGE_ORDER",
    "DispatchPolicy",
    "Fcfs",
    "dispatch_policies",
    "first_come",
    "first_in_line",
    "make_dispatch",
    "nearest_gpu",
    "prefetches",
    "register_dispatch",
]

STAGE_ORDER = (Stage.DECODER, Stage.DIT, Stage.ENCODER)
"""Last stage first, so that finished work leaves: a decode frees latents and ends a request,
while an encode only makes more work wait. On a GPU that holds all stages this keeps at most one
request's tensors in flight per GPU, and a request's decode follows its denoising in place."""


class DispatchPolicy(Protocol):
    """The fast decision.

    One instance belongs to one controller and may keep state between calls. It must be
    deterministic: no clock, no randomness.

    A policy with an attribute ``watches_steps = False`` is not asked after every denoising step,
    only when requests, GPUs or groups change, which is much rarer; one with
    ``watches_clock = False`` is not asked where only time has passed. One with
    ``uses_groups = False`` never asks for several GPUs for one request; nothing is set up for
    groups then. One with a method ``weigh(request) -> float``, asked together with `order`, finds
    the sum over those that wait in `QueueView.weight`, so that it need not go through them.
    """

    def plan(self, view: ClusterView, now: float) -> Iterable[actions.Action]:
        """What to do now; asked after every event that changed something.

        Each action takes effect before the next is asked for, so a generator sees in `view` what
        it has decided so far. An action that cannot be carried out ends the planning of this
        event and is noted in the decision log.

        Parameters
        ----------
        view : ClusterView
            Live and read only.
        now : float
            Seconds on the control plane's clock.
        """
        ...

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Sort key of a request in its queue, asked when it begins to wait; smaller goes first.

        ``()`` keeps the order of acceptance.
        """
        ...


_REGISTRY: dict[str, Callable[[], DispatchPolicy]] = {}


def register_dispatch(name: str, make: Callable[[], DispatchPolicy]) -> None:
    """Make a policy known under a name, for `ControlConfig.dispatch`.

    Parameters
    ----------
    name : str
    make : callable
        Makes a fresh policy: the class itself, or a lambda that fixes its parameters.
    """
    _REGISTRY[name] = make


def dispatch_policies() -> tuple[str, ...]:
    """Names of the registered policies, sorted."""
    return tuple(sorted(_REGISTRY))


def make_dispatch(name: str) -> DispatchPolicy:
    """A fresh policy by name.

    Raises
    ------
    ConfigError
        Where no policy has that name.
    """
    if name not in _REGISTRY:
        raise ConfigError("control.dispatch", name, "one of " + ", ".join(dispatch_policies()))
    return _REGISTRY[name]()


def nearest_gpu(view: ClusterView, request: RequestView) -> GpuId | None:
    """The free GPU that a request starts on soonest at DoP 1, None if none is free.

    The one that pulled its inputs ahead, else the one that made them, else the lowest that has
    not failed it, else the lowest.
    """
    key = request.key
    free = view.free(key)
    if not free:
        return None
    for gpu in (request.prepared, *(ref.gpu for ref in request.inputs)):
        if gpu is not None and gpu not in request.avoid and view.is_free(key, gpu):
            return gpu
    if request.avoid:
        return next((gpu for gpu in free if gpu not in request.avoid), free[0])
    return free[0]


def prefetches(view: ClusterView) -> Iterator[actions.Prefetch]:
    """Let GPUs that are about to end their work pull the inputs of those next in line."""
    for stage in (Stage.DECODER, Stage.DIT):
        for key, queue in view.queues(stage):
            while (request := queue.next_unprepared) is not None:
                gpu = next(iter(view.prefetch_slots(key)), None)
                if gpu is None:
                    break
                yield actions.Prefetch(request.request_id, gpu, "next in line here")


def first_come(view: ClusterView, stage: Stage) -> Iterator[actions.Start]:
    """Start a stage at DoP 1 for those in line, in order, while GPUs are free for it."""
    while (request := first_in_line(view, stage)) is not None:
        gpu = nearest_gpu(view, request)
        assert gpu is not None, request
        yield actions.Start(request.request_id, (gpu,), "first in line")


def first_in_line(view: ClusterView, stage: Stage) -> RequestView | None:
    """The first in line for a stage, of any model, that has a free GPU; None if there is none.

    A stage pauses while enough of its output waits already.
    """
    first: tuple[tuple[object, ...], RequestView] | None = None
    for key, queue in view.queues(stage):
        head = queue.head
        if head is None or not view.free(key) or not view.has_room_after(key):
            continue
        if first is None or head.rank < first[0]:
            first = (head.rank, head)
    return first[1] if first else None


class Fcfs:
    """First come, first served, at DoP 1, later stages first (`STAGE_ORDER`).

    Within a stage no request is overtaken by a later one of the same model. A stage pauses while
    enough of its output waits already (`ControlConfig.ready_per_gpu`).
    """

    watches_steps = False
    watches_clock = False
    uses_groups = False

    def __repr__(self) -> str:
        return "Fcfs()"

    def order(self, request: RequestView) -> tuple[object, ...]:  # noqa: ARG002
        """Order of acceptance."""
        return ()

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:  # noqa: ARG002
        """Start whoever is first in line wherever a GPU is free."""
        for stage in STAGE_ORDER:
            yield from first_come(view, stage)
        yield from prefetches(view)


register_dispatch("fcfs", Fcfs)
