"""Which Dask workers one machine runs: the specification that all ways of starting share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Worker, WorkerPlugin

from elastic_dit.cluster.launch.devices import Device
from elastic_dit.cluster.launch.nanny import SteadyNanny
from elastic_dit.cluster.worker.engine_plugin import EnginePlugin
from elastic_dit.config import Config

__all__ = ["CONTROL_SUFFIX", "WorkerSpec", "control_worker_spec", "worker_spec"]

CONTROL_SUFFIX = "-control"
"""Ends the name of a machine's control worker."""

WorkerSpec = dict[str, dict[str, Any]]
"""``{name: {"cls": SteadyNanny, "options": {...}, "machine": name}}``, as `distributed.SpecCluster`
takes it; of ``machine`` it knows nothing, `elastic_dit.cluster.launch.machines` does."""


def worker_spec(
    devices: Sequence[Device],
    *,
    name: str,
    config: Config,
    node: str | None = None,
    plugins: Sequence[WorkerPlugin] = (),
    numbered: bool = True,
    control_worker: bool = True,
    nanny: bool = True,
    **options: Any,
) -> WorkerSpec:
    """One worker per device, and one for the control plane's slow thinking.

    Parameters
    ----------
    devices : sequence of Device
    name : str
        Workers are called ``NAME-0``, ``NAME-1`` … and ``NAME-control``.
    config : Config
    node : str, optional
        Name of the machine, `name` by default.
    plugins : sequence of WorkerPlugin
        Further plug-ins of the GPU workers.
    numbered : bool
        False leaves the name of a single GPU's worker as it is, which is what a Kubernetes
        operator looks for.
    control_worker : bool
        Whether to add the control worker.
    nanny : bool
        False runs the worker in this process, without restarts; for a single device.
    **options
        Passed on to `distributed.Nanny`.
    """
    spec: WorkerSpec = {}
    for device in devices:
        worker = name if not numbered and len(devices) == 1 else f"{name}-{device.index}"
        engine = EnginePlugin(
            config, device=device.torch_device, node=node or name, index=device.index
        )
        spec[worker] = _entry(
            worker,
            machine=name,
            resources={"GPU": 1.0},
            plugins=(engine, *plugins),
            env=_environment(device, config),
            nanny=nanny,
            options=options,
        )
    if control_worker:
        spec.update(control_worker_spec(name, **options))
    return spec


def control_worker_spec(name: str, **options: Any) -> WorkerSpec:
    """The worker without a GPU that hosts the scheduler actor; one per machine.

    Parameters
    ----------
    name : str
        As in `worker_spec`.
    **options
        Passed on to `distributed.Nanny`.
    """
    from elastic_dit.cluster.launch.control_worker import ControlWorkerPlugin

    worker = name + CONTROL_SUFFIX
    return {
        worker: _entry(
            worker,
            machine=name,
            resources={"CONTROL": 1.0},
            plugins=(ControlWorkerPlugin(),),
            env={"CUDA_VISIBLE_DEVICES": ""},
            nanny=True,
            options={**options, "nthreads": 1, "resources": None},
        )
    }


def _entry(
    name: str,
    *,
    machine: str,
    resources: Mapping[str, float],
    plugins: Sequence[WorkerPlugin],
    env: Mapping[str, str],
    nanny: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    merged: dict[str, Any] = {
        "nthreads": 1,
        # Dask's thresholds know nothing of weights in host memory and would kill the worker.
        "memory_limit": 0,
        **options,
        "name": name,
        "resources": {**resources, **(options.get("resources") or {})},
        "plugins": tuple(plugins),
    }
    if not nanny:
        return {"cls": Worker, "options": merged, "machine": machine}
    merged["env"] = {**env, **(options.get("env") or {})}
    return {"cls": SteadyNanny, "options": merged, "machine": machine}


def _environment(device: Device, config: Config) -> dict[str, str]:
    """In place before the worker's process imports anything that reads it."""
    if not device.is_virtual:
        return {"CUDA_VISIBLE_DEVICES": device.visible}
    threads = str(config.engine.cpu_threads)
    return {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
