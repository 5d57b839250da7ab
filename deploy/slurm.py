"""elastic-dit on Slurm: one job per machine, as many machines as the placement policy wants.

Run it on a login node, from a folder that all nodes share: python slurm.py deployment.yaml
"""

import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster

from elastic_dit import Client, Config
from elastic_dit.cluster.launch.machines import MachineAdaptive

GPUS = 8
"""Of a node; each is one engine."""


def make_cluster(settings: Path) -> SLURMCluster:
    """A cluster whose jobs run `elastic-dit-worker`, with TLS that Dask makes for its life."""
    return SLURMCluster(
        worker_command="elastic_dit.cli.worker",
        worker_extra_args=["--config", str(settings)],
        processes=GPUS,
        cores=GPUS,
        memory="0",  # Dask's limit per process: it knows nothing of weights in host memory
        job_mem="0",  # Slurm's word for all memory of the node
        walltime="24:00:00",
        job_extra_directives=[f"--gres=gpu:{GPUS}", "--exclusive"],
        shared_temp_directory=str(settings.parent),
        security=True,
    )


if __name__ == "__main__":
    settings = Path(sys.argv[1]).resolve()
    config = Config.load(settings)
    if config.placement.max_machines is None:
        sys.exit("say in the settings how many machines there may be: placement.max_machines")
    with make_cluster(settings) as cluster:
        cluster.adapt(Adaptive=MachineAdaptive, config=config, interval="5s")
        with Client(cluster, config=config) as client:
            print(client, "at", cluster.scheduler_address)
            input("Enter ends the cluster. ")
