"""One engine as a Dask actor: the calls that are slow, stateful and awaited."""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import distributed
from distributed import get_worker

from elastic_dit.actors.profiling import profile_stages
from elastic_dit.cluster.plane.retirement import ACTOR_PREFIX
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.errors import ClusterError, ElasticDitError
from elastic_dit.request import Stage, StageKey

__all__ = ["EngineActor", "engine_actor"]

P = ParamSpec("P")
T = TypeVar("T")


def engine_actor(client: distributed.Client, address: str) -> distributed.Future:
    """A future of the `EngineActor` on the worker at `address`.

    The actor is released when its worker retires, whoever holds it; it has no state to lose.

    Examples
    --------
    >>> actor = engine_actor(client, address).result()  # doctest: +SKIP
    >>> actor.inspect().result()["resident"]  # doctest: +SKIP
    [['shapes', 'dit']]
    """
    return client.submit(
        EngineActor,
        key=f"{ACTOR_PREFIX}engine-{uuid.uuid4().hex}",
        actor=True,
        workers=[address],
        allow_other_workers=False,
    )


def _safe(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Let only errors of ours out: Dask leaves a caller waiting for ever if it cannot send one."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        safe: ElasticDitError
        try:
            return await method(*args, **kwargs)
        except ElasticDitError as error:
            safe = copy.copy(error)
        except Exception as error:
            safe = ClusterError(f"{type(error).__name__}: {error}")
        # Out of the handler, and a copy: causes and contexts are sent along with an error.
        raise safe

    return call


class EngineActor:
    """Load, drop, profile, inspect and drain the engine of the worker it lives on.

    It has no state of its own: the engine belongs to the worker's `EnginePlugin`, outlives the
    actor, and is the same for every actor made on that worker. What a call changes goes out as
    events too, so the control plane knows of it.

    Notes
    -----
    Arguments and results are plain data. Errors are `ElasticDitError`; anything else arrives as
    a `ClusterError` with its text. A call from another *worker* must be bounded by its caller
    (``asyncio.wait_for``): should this worker die, Dask never ends it.
    """

    def __init__(self) -> None:
        self._plugin = _plugin()
        self._runner = self._plugin.runner

    def __repr__(self) -> str:
        return f"<EngineActor of {self._runner!r}>"

    @_safe
    async def load(self, model: str, stage: str) -> float:
        """Make a stage resident; seconds it took, 0 where it was already.

        Raises
        ------
        ModelLoadError
        """
        return await self._runner.loader.load(_key(model, stage))

    @_safe
    async def drop(self, model: str, stage: str) -> None:
        """Free a stage."""
        await self._runner.loader.drop(_key(model, stage))

    @_safe
    async def profile(self, shapes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Time the resident stages; see `profile_stages`. Nothing else runs meanwhile.

        Raises
        ------
        InvalidRequest
            Where the model cannot make such a shape.
        """
        return await self._runner.host.in_order(lambda engine: profile_stages(engine, shapes))

    @_safe
    async def inspect(self) -> dict[str, Any]:
        """What the engine is, holds, keeps for others and has queued."""
        return await self._plugin.inspect()

    @_safe
    async def drain(self, timeout_s: float) -> bool:
        """Start nothing more; whether all was done and fetched within `timeout_s` seconds.

        Where not, the engine starts what it is told again.
        """
        return await self._runner.drain(timeout_s)


def _plugin() -> EnginePlugin:
    worker = get_worker()
    plugin = worker.plugins.get(EnginePlugin.name)
    if not isinstance(plugin, EnginePlugin):
        raise ClusterError(f"worker {worker.name} has no engine")
    return plugin


def _key(model: str, stage: str) -> StageKey:
    try:
        return StageKey(model, Stage(stage))
    except ValueError:
        raise ClusterError(f"no stage is called {stage!r}: {', '.join(Stage)}") from None
