"""A whole cluster on this machine: scheduler, control plane, engines."""

from __future__ import annotations

import contextlib
import itertools
import logging
import signal
import threading
from collections.abc import Awaitable
from multiprocessing import resource_tracker
from typing import Any

import dask
from distributed import Scheduler, Security, SpecCluster, Status
from distributed.utils import NoOpAwaitable

from elastic_dit.cluster.launch.devices import Device, find_devices
from elastic_dit.cluster.launch.machines import MachineAdaptive
from elastic_dit.cluster.launch.processes import end_quickly, worker_processes
from elastic_dit.cluster.launch.workers import CONTROL_SUFFIX, control_worker_spec, worker_spec
from elastic_dit.cluster.plain_errors import hide_known_tracebacks, muted_logs, start_error
from elastic_dit.cluster.plane.control_plugin import ControlPlugin
from elastic_dit.config import Config

__all__ = ["LocalElasticCluster"]

_LOST_WORKER_TIMEOUT = "300s"
"""How long a nanny may take to bring back a worker before Dask's cluster class gives up on it.

Dask's own 15 s are less than a start with torch's imports takes on a busy machine.
"""


class LocalElasticCluster(SpecCluster):  # type: ignore[misc]
    """Scheduler in this process, one worker process per GPU, all on the loopback interface.

    Parameters
    ----------
    virtual_gpus : int
        Serve from CPUs as if there were so many GPUs.
    devices : str, optional
        Real GPUs like ``0,1,2`` instead; all by default.
    config : Config, optional
    name : str
        Workers are called ``NAME-0``, ``NAME-1`` … and ``NAME-control``.
    host : str
        Interface to listen on. Whoever reaches a Dask port may run code there.
    port : int
        Of the scheduler, 0 for any.
    security : distributed.Security, optional
        For TLS; `Security.temporary()` makes certificates for the cluster's life.
    dashboard_address : str, optional
        Where Dask's dashboard listens, None for none.
    control_worker : bool
        Whether to start the worker that hosts the scheduler actor.
    silence_logs : int or False
        Level below which Dask logs nothing.
    asynchronous : bool
        For use within an event loop.
    **options
        Passed on to each `distributed.Nanny`.

    Raises
    ------
    ConfigError
        Where there is no such GPU.
    ClusterError
        Where a worker cannot start; nothing is left running.

    Examples
    --------
    >>> from elastic_dit.cluster.launch.local import LocalElasticCluster
    >>> with LocalElasticCluster(virtual_gpus=3) as cluster:  # doctest: +SKIP
    ...     print(cluster.scheduler_address)
    tcp://127.0.0.1:40123

    Notes
    -----
    `scale` counts the GPUs of the first machine, `NAME`; the control worker stays until the
    cluster closes. Where the settings allow for several machines (``placement.max_machines``),
    or after `adapt`, further ones of as many virtual GPUs come and go as the placement policy
    wants them: ``NAME-m2``, ``NAME-m3`` …
    """

    def __init__(
        self,
        *,
        virtual_gpus: int = 0,
        devices: str | None = None,
        config: Config | None = None,
        name: str = "local",
        host: str = "127.0.0.1",
        port: int = 0,
        security: Security | None = None,
        dashboard_address: str | None = "127.0.0.1:8787",
        control_worker: bool = True,
        silence_logs: int | bool = logging.WARNING,
        asynchronous: bool = False,
        **options: Any,
    ) -> None:
        self.config = config or Config()
        self._devices = find_devices(devices, virtual_gpus)
        self._machine_size = len(self._devices)
        self._worker_name = name
        hide_known_tracebacks()
        shared = {
            "host": host,
            "protocol": "tls://" if security and security.require_encryption else "tcp://",
            "security": security,
        }
        self._options = {
            "silence_logs": silence_logs,
            "dashboard": False,
            "dashboard_address": f"{host}:0",
            **shared,
            **options,
        }
        scheduler = {
            "cls": Scheduler,
            "options": {
                **shared,
                "port": port,
                "dashboard": dashboard_address is not None,
                # Without a dashboard there is still a page of health and metrics: on any free port.
                "dashboard_address": dashboard_address or f"{host}:0",
            },
        }
        workers = self._spec(self._devices)
        if control_worker:
            workers.update(control_worker_spec(name, **self._options))
        self._processes = contextlib.ExitStack()
        self._processes.enter_context(
            dask.config.set({"distributed.deploy.lost-worker-timeout": _LOST_WORKER_TIMEOUT})
        )
        self._processes.enter_context(worker_processes(self._devices, self.config))
        try:
            super().__init__(
                workers=workers,
                scheduler=scheduler,
                asynchronous=asynchronous,
                security=security,
                silence_logs=silence_logs,
                name=name,
            )
        except BaseException:
            # Ctrl-C comes here too, and nobody holds the object yet to close it.
            self._give_up(asynchronous)
            raise

    def __repr__(self) -> str:
        address = self.scheduler_address if self.scheduler else "not started"
        return f"<LocalElasticCluster {self._worker_name}: {self.gpus} GPUs, {address}>"

    @property
    def gpus(self) -> int:
        """GPUs it has or is starting."""
        return len(self._engine_names())

    def scale(self, n: int = 0, memory: Any = None, cores: Any = None) -> Awaitable[None] | None:
        """Start or stop virtual GPUs until there are `n`.

        Raises
        ------
        ConfigError
            Where a real GPU is asked for that the machine does not have.
        """
        del memory, cores  # part of Dask's signature; a GPU has one size
        if self.status in (Status.closing, Status.closed, Status.failed):
            self.worker_spec.clear()
        else:
            self._scale_to(n)
        self.loop.add_callback(self._correct_state)
        return NoOpAwaitable() if self.asynchronous else None

    def adapt(
        self,
        Adaptive: type[MachineAdaptive] = MachineAdaptive,  # noqa: N803 - Dask's own name for it
        **options: Any,
    ) -> MachineAdaptive:
        """Let machines come and go as the placement policy wants it.

        Parameters
        ----------
        Adaptive : type
        **options
            As of `MachineAdaptive`.
        """
        adaptive: MachineAdaptive = super().adapt(Adaptive=Adaptive, **options)
        return adaptive

    def new_worker_spec(self) -> dict[str, Any]:
        """Another machine, with as many virtual GPUs as the first one began with.

        Returns
        -------
        dict
            Its entries of ``worker_spec``; values of None where the GPUs are real, as there are
            no others on this machine.
        """
        taken = {spec["machine"] for spec in self.worker_spec.values()}
        numbered = (f"{self._worker_name}-m{number}" for number in itertools.count(2))
        name = next(name for name in numbered if name not in taken)
        if not all(device.is_virtual for device in self._devices):
            return {name: None}
        return self._spec(find_devices(None, self._machine_size), name)

    def _scale_to(self, n: int) -> None:
        names = [
            name
            for name in self._engine_names()
            if self.worker_spec[name]["machine"] == self._worker_name
        ]
        for name in names[n:]:
            del self.worker_spec[name]
        if len(names) < n:
            missing = [device for device in self._first(n) if self._worker_of(device) not in names]
            self.worker_spec.update(self._spec(missing))

    def _first(self, n: int) -> tuple[Device, ...]:
        if n > len(self._devices):
            virtual = n if all(device.is_virtual for device in self._devices) else 0
            self._devices = find_devices(None, virtual)
        return self._devices[:n]

    def _give_up(self, asynchronous: bool) -> None:
        with muted_logs(), contextlib.suppress(Exception):
            if not asynchronous:
                self.close(timeout=_CLOSE_TIMEOUT_S)
        self._processes.close()

    def _spec(self, devices: Any, machine: str | None = None) -> dict[str, Any]:
        return worker_spec(
            devices,
            name=machine or self._worker_name,
            config=self.config,
            control_worker=False,
            **self._options,
        )

    def _worker_of(self, device: Device) -> str:
        return f"{self._worker_name}-{device.index}"

    def _engine_names(self) -> list[str]:
        return [name for name in self.worker_spec if not name.endswith(CONTROL_SUFFIX)]

    async def _start(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            # Threads and processes started from this loop inherit the mask: Ctrl-C in a terminal
            # is then heard by the main thread alone, which closes the cluster in good order.
            resource_tracker.ensure_running()  # its start would unblock the signal again
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        await super()._start()
        from elastic_dit.cluster.launch.bootstrap import install_control

        await install_control(self.scheduler_comm, self.config)
        if self.config.placement.max_machines is not None:
            self.adapt(interval=f"{self.config.placement.interval_s / 2}s")

    async def _correct_state_internal(self) -> None:
        try:
            await super()._correct_state_internal()
        except RuntimeError as error:
            raise start_error(self._worker_name, error) from None

    async def _close(self) -> None:
        # Workers leave first: what ends because of that is not to be written down as ended.
        control = getattr(self.scheduler, "plugins", {}).get(ControlPlugin.name)
        if control is not None:
            control.suspend()
        # Those whose start was interrupted; Dask's own close would stumble over them.
        running = set(self.workers.values())
        strays = {each for each in set(self._created) - running if each.status != Status.closed}
        if strays:
            await end_quickly(strays, beside=running)
        try:
            await super()._close()
        finally:
            self._processes.close()


_CLOSE_TIMEOUT_S = 30.0
"""Longest orderly end of a cluster whose start was interrupted, seconds."""
