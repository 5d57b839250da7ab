"""elastic-dit on several machines that ssh reaches: those named first always, others as wanted.

python ssh.py deployment.yaml 10.0.0.1 gpu1,gpu2 gpu3,gpu4
"""

import sys
from typing import Any

from distributed import Scheduler, SpecCluster

from elastic_dit import Client, Config
from elastic_dit.cluster.launch.command_machine import CommandMachine
from elastic_dit.cluster.launch.machines import MachineAdaptive

GPUS = 8
"""Of each machine; the settings' file and the environment are at the same path on all."""


def machine(host: str, settings: str) -> dict[str, Any]:
    """What starts the engines of a host; they end by themselves once they are retired."""
    worker = ["elastic-dit-worker", "{scheduler}", "--name", "{name}", "--config", settings]
    return {
        "cls": CommandMachine,
        "options": {"command": ["ssh", "-tt", "-o", "BatchMode=yes", host, *worker]},
        "group": [f"-{gpu}" for gpu in range(GPUS)],
    }


def main(settings: str, address: str, always: str, spare: str = "") -> None:
    """Serve until Enter."""
    config = Config.load(settings)
    cluster = SpecCluster(
        scheduler={"cls": Scheduler, "options": {"host": address, "port": 8786}},
        workers={host: machine(host, settings) for host in always.split(",")},
    )
    with cluster:
        spares = {host: machine(host, settings) for host in spare.split(",") if host}
        cluster.adapt(Adaptive=MachineAdaptive, config=config, spares=spares)
        with Client(cluster, config=config) as client:
            print(client, "at", cluster.scheduler_address)
            input("Enter ends the cluster. ")


if __name__ == "__main__":
    main(*sys.argv[1:])
