"""Put the control plane onto a Dask scheduler that knows nothing of it."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Security
from distributed.core import rpc
from distributed.protocol.pickle import dumps

from elastic_dit.cluster.connection import CONNECTION_ERRORS, connection_error
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.config import Config
from elastic_dit.errors import ClusterError, ElasticDitError

__all__ = ["ensure_control", "has_control", "install_control"]

_CONNECT_TIMEOUT_S = Config().client.connect_timeout_s


async def ensure_control(
    address: str,
    *,
    security: Security | None = None,
    config: Config | None = None,
    timeout_s: float = _CONNECT_TIMEOUT_S,
) -> None:
    """Make sure that the scheduler at `address` runs the control plane.

    Safe to call from any number of workers and clients at once, before anything else is sent:
    an op that a Dask scheduler does not know ends the connection it came by.

    Parameters
    ----------
    address : str
        Dask scheduler, such as ``tcp://10.0.0.1:8786``.
    security : distributed.Security, optional
        For TLS.
    config : Config, optional
        The deployment's settings. The first to bring some decides; without any, defaults hold
        until somebody does.
    timeout_s : float
        Bound of the whole, seconds.

    Raises
    ------
    SchedulerUnreachable
        Where no Dask scheduler answers in time.
    ClusterError
        Where it cannot import elastic-dit.
    ConfigError
        Where the settings name a policy that the scheduler's elastic-dit does not know, or
        certificates and the address do not fit together.
    JournalError
        Where they name a journal that cannot be opened.
    """
    arguments = (security or Security()).get_connection_args("client")
    try:
        async with asyncio.timeout(timeout_s), rpc(address, connection_args=arguments) as scheduler:
            await install_control(scheduler, config)
    except ElasticDitError:
        raise
    except CONNECTION_ERRORS as error:
        raise connection_error(address, error, timeout_s) from None


async def install_control(scheduler: Any, config: Config | None = None) -> None:
    """As `ensure_control`, over a connection that is there: ``client.scheduler``, ``worker.scheduler``.

    Raises
    ------
    ClusterError
        Where the scheduler cannot import elastic-dit.
    """  # noqa: E501
    plugin = ControlPlugin(config or Config(), provisional=config is None)
    try:
        await scheduler.register_scheduler_plugin(
            plugin=dumps(plugin), name=ControlPlugin.name, idempotent=True
        )
    except ImportError as error:
        raise ClusterError(
            f"the Dask scheduler cannot import elastic-dit: install it there too ({error})"
        ) from None
    if config is not None:
        await scheduler.elastic_dit_configure(config=config.model_dump(mode="json"))


async def has_control(scheduler: Any) -> bool:
    """Whether the scheduler at the other end of a connection runs the control plane.

    Asked in a way that leaves no complaint in its log if it does not.
    """
    answer = await scheduler.run_function(function=dumps(_has_control))
    return bool(answer.get("result"))


def _has_control(dask_scheduler: Any = None) -> bool:
    """Runs on the scheduler."""
    return ControlPlugin.name in dask_scheduler.plugins
