"""A simulation from a few words: policy, cost model, machines, requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.cost import CostModel, CostTimes, read_polynomial_cost, read_stage_latencies
from elastic_dit.errors import ConfigError
from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.ddit_grid import Deployment
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.simulate.workload import Arrival

__all__ = ["find_cost_model", "set_up"]


def find_cost_model(name: str) -> CostModel:
    """A cost model by the name of a published one, or from a file or folder.

    Parameters
    ----------
    name : str
        ``ddit`` (Figure 17) or ``mixed-priority`` (GF-DiT's profile of Wan 2.2 A14B); a CSV in the
        form of `read_stage_latencies`; a folder in that of `read_polynomial_cost`.

    Raises
    ------
    ConfigError
        Where there is nothing of that name, or what there is cannot be read.

    Examples
    --------
    >>> find_cost_model("ddit")
    <TableCost H800>
    """
    if name == "ddit":
        return read_stage_latencies()
    if name == "mixed-priority":
        return read_polynomial_cost()
    path = Path(name)
    if path.is_dir():
        return read_polynomial_cost(path)
    if path.is_file():
        return read_stage_latencies(path)
    raise ConfigError("cost", name, "ddit, mixed-priority, a CSV file or a folder with JSON files")


def set_up(
    arrivals: Sequence[Arrival],
    *,
    policy: str,
    cost: CostModel,
    deployment: Deployment,
    times: CostTimes | None = None,
    handover_s: float = 0.0,
) -> VirtualCluster:
    """A cluster whose GPUs hold all stages of all models that are asked for, not yet run.

    Parameters
    ----------
    arrivals : sequence of Arrival
    policy : str
        Name of a dispatch policy.
    cost : CostModel
    deployment : Deployment
    times : CostTimes, optional
        Of the same cost model, to share what it remembers between simulations.
    handover_s : float
        Of every change of the GPUs that work on a request.

    Raises
    ------
    ConfigError
        Where no policy has that name.
    """
    per_node = deployment.gpus_per_node
    slots = max(ControlConfig().slots_per_node, 1 << (per_node - 1).bit_length())
    config = ControlConfig(dispatch=policy, slots_per_node=slots)
    controller = Controller(config, times=times or CostTimes(cost))
    cluster = VirtualCluster(controller, cost, overheads=Overheads(handover_s=handover_s))
    models = sorted({arrival.request.model for arrival in arrivals})
    for node in range(deployment.nodes):
        cluster.add_node(f"n{node}", gpus=per_node, models=models)
    cluster.submit(arrivals)
    return cluster
