"""A cluster on this machine for the time of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from elastic_dit.cli.closing import uninterrupted
from elastic_dit.cli.ready import wait_until_settled
from elastic_dit.config import Config

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.client import Client
    from elastic_dit.cluster.launch.local import LocalElasticCluster

__all__ = ["demo_config", "serving"]


def demo_config() -> Config:
    """Settings where no others are given: every GPU holds all stages, groups as the load allows."""
    return Config.parse({"placement": {"policy": "colocated"}, "control": {"dispatch": "elastic"}})


@contextmanager
def serving(virtual_gpus: int, config: Config, console: Console) -> Iterator[Client]:
    """A client of a cluster that is gone when the block is left, however it is left.

    Parameters
    ----------
    virtual_gpus : int
    config : Config
    console : Console
        Told what is waited for.

    Raises
    ------
    ElasticDitError
        Where the cluster does not start, or not all its engines load their stages in time.
    """
    with console.status(f"Starting {virtual_gpus} virtual GPUs") as status, ExitStack() as stack:
        from elastic_dit.client import Client
        from elastic_dit.cluster.launch.local import LocalElasticCluster

        cluster = LocalElasticCluster(
            virtual_gpus=virtual_gpus, config=config, dashboard_address="127.0.0.1:0"
        )
        stack.callback(_close, cluster)
        client = Client(cluster, config=config)
        stack.callback(_close, client)
        status.update("Loading the model")
        wait_until_settled(client, virtual_gpus, config.client.ready_timeout_s)
        status.stop()
        console.print(f"Live page: {client.dashboard_link}", soft_wrap=True)
        yield client


def _close(resource: Client | LocalElasticCluster) -> None:
    with uninterrupted():
        resource.close()
