"""From the options of ``elastic-dit-worker`` to running workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Security
from distributed.cli.dask_worker import _apportion_ports
from distributed.core import coerce_to_address
from distributed.utils import json_load_robust

from elastic_dit.cluster.launch.devices import Device, find_devices
from elastic_dit.cluster.launch.workers import CONTROL_SUFFIX, WorkerSpec, worker_spec
from elastic_dit.config import Config
from elastic_dit.errors import ConfigError, SchedulerUnreachable

__all__ = ["Launch", "find_scheduler", "pid_file"]

_TAKEN_SEPARATELY = frozenset(
    {
        "scheduler", "scheduler_file", "devices", "virtual_gpus", "config_file", "control_worker",
        "nworkers", "tls_ca_file", "tls_cert", "tls_key", "worker_port", "nanny_port", "pid_file",
        "name", "resources", "nanny", "nthreads", "listen_address", "contact_address", "host",
        "preload_nanny",
    }
)  # fmt: skip
"""Options that `Launch` reads itself; all others go to Dask's nannies as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What one ``elastic-dit-worker`` process is to run, worked out and checked.

    Attributes
    ----------
    config : Config
    devices : tuple of Device
    security : distributed.Security
    spec : dict
        See `elastic_dit.cluster.launch.workers.worker_spec`.
    scheduler : str or None
    scheduler_file : str or None
    timeout_s : float
        Longest wait for the scheduler, seconds.
    """

    config: Config
    devices: tuple[Device, ...]
    security: Security
    spec: WorkerSpec
    scheduler: str | None
    scheduler_file: str | None
    timeout_s: float

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Launch:
        """Work it out from the command's options.

        Raises
        ------
        ConfigError
            Naming the option, its value and what is allowed.
        """
        scheduler, scheduler_file = options["scheduler"], options["scheduler_file"]
        if not (scheduler or scheduler_file or dask.config.get("scheduler-address", None)):
            raise ConfigError("SCHEDULER", None, "given, or --scheduler-file")
        config = Config.load(options["config_file"])
        devices = find_devices(options["devices"], options["virtual_gpus"] or 0)
        security = _security(options)
        return cls(
            config=config,
            devices=devices,
            security=security,
            spec=_spec(options, devices, config, security),
            scheduler=scheduler,
            scheduler_file=scheduler_file,
            timeout_s=_timeout(options, config),
        )


async def find_scheduler(launch: Launch) -> str:
    """Address of the scheduler.

    Raises
    ------
    SchedulerUnreachable
        Where the scheduler file does not appear in time, or holds no address.
    """
    if launch.scheduler_file is None:
        return str(coerce_to_address(launch.scheduler or dask.config.get("scheduler-address")))
    try:
        content = await asyncio.to_thread(
            json_load_robust, launch.scheduler_file, timeout=launch.timeout_s
        )
        return str(content["address"])
    except (TimeoutError, ValueError, KeyError, TypeError, OSError):
        raise SchedulerUnreachable(
            f"no scheduler's address in {launch.scheduler_file} within {launch.timeout_s:g} s"
        ) from None


def _timeout(options: Mapping[str, Any], config: Config) -> float:
    if options["death_timeout"] is None:
        return config.client.connect_timeout_s
    try:
        return float(parse_timedelta(options["death_timeout"], "s"))
    except (ValueError, KeyError):
        raise ConfigError(
            "death-timeout", options["death_timeout"], "a duration like 60 or 60s"
        ) from None


def _security(options: Mapping[str, Any]) -> Security:
    files = {
        "tls_ca_file": options["tls_ca_file"],
        "tls_worker_cert": options["tls_cert"],
        "tls_worker_key": options["tls_key"],
        # The same papers serve to put the control plane onto the scheduler.
        "tls_client_cert": options["tls_cert"],
        "tls_client_key": options["tls_key"],
    }
    given = {name: file for name, file in files.items() if file is not None}
    # Whoever brings certificates wants nothing in the clear, whatever the address says.
    return Security(require_encryption=True, **given) if given else Security()


def _spec(
    options: Mapping[str, Any], devices: tuple[Device, ...], config: Config, security: Security
) -> WorkerSpec:
    if options["nworkers"] not in (None, len(devices)):
        raise ConfigError("nworkers", options["nworkers"], f"{len(devices)}, one per GPU")
    nanny = options["nanny"]
    if not nanny and len(devices) > 1:
        raise ConfigError("no-nanny", True, "left out where there are several GPUs")
    passed = {
        name: value
        for name, value in options.items()
        if name not in _TAKEN_SEPARATELY and value not in (None, (), "")
    }
    if nanny:
        passed["preload_nanny"] = options["preload_nanny"] or None
    given_name = options["name"]
    spec = worker_spec(
        devices,
        name=given_name or f"{socket.gethostname()}-{os.getpid()}",
        config=config,
        numbered=given_name is None,
        # Without a nanny there is one process, and it is the GPU's.
        control_worker=options["control_worker"] and nanny,
        nanny=nanny,
        security=security,
        resources=_resources(options["resources"]),
        nthreads=options["nthreads"] or 1,
        **passed,
    )
    _add_addresses(spec, options)
    return spec


def _resources(text: str | None) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in (text or "").replace(",", " ").split())
    try:
        return {name: float(value) for name, _, value in pairs}
    except ValueError:
        raise ConfigError("resources", text, 'pairs like "VRAM=80e9 FAST=1"') from None


def _add_addresses(spec: WorkerSpec, options: Mapping[str, Any]) -> None:
    """Spread ports as ``dask worker`` does, the control worker taking what is free."""
    host, worker_port = options["host"], options["worker_port"]
    engines = [name for name in spec if not name.endswith(CONTROL_SUFFIX)]
    listen, contact = options["listen_address"], options["contact_address"]
    if (listen or contact) and len(engines) > 1:
        raise ConfigError("listen-address", listen or contact, "left out for several GPUs")
    for option in ("worker_port", "nanny_port"):
        _check_ports(option.replace("_", "-"), options[option], host, len(engines))
    ports = _apportion_ports(worker_port, options["nanny_port"], len(engines), options["nanny"])
    for name, chosen in zip(engines, ports, strict=True):
        spec[name]["options"].update(chosen)
        if listen:
            spec[name]["options"].update(_listening(listen, contact, options["nanny"]))
    for entry in spec.values():
        if host:
            entry["options"]["host"] = host


def _listening(listen: str, contact: str | None, nanny: bool) -> dict[str, Any]:
    from distributed.comm import get_address_host_port

    try:
        host, port = get_address_host_port(listen, strict=True)
    except ValueError as error:
        raise ConfigError("listen-address", listen, f"like tcp://0.0.0.0:9000 ({error})") from None
    bound = {"host": host, "contact_address": contact or listen}
    return {**bound, "worker_port": port, "listen_address": listen} if nanny else {
        **bound, "port": port
    }  # fmt: skip


def _check_ports(option: str, text: str | None, host: str | None, wanted: int) -> None:
    """Refuse ports that are taken, before anything is started."""
    from distributed.utils import parse_ports

    try:
        ports = [port for port in parse_ports(text) if port]
    except ValueError:
        raise ConfigError(option, text, "a port like 8790 or a range like 8790:8797") from None
    if ports and sum(_is_free(port, host) for port in ports) < wanted:
        raise ConfigError(option, text, f"{wanted} free port(s): something listens there already")


def _is_free(port: int, host: str | None) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host or "", port))
        return True
    return False


@contextlib.contextmanager
def pid_file(path: str | None) -> Iterator[None]:
    """Within it the file holds this process's number.

    Raises
    ------
    ConfigError
        Where it cannot be written.
    """
    if not path:
        yield
        return
    file = Path(path)
    try:
        file.write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError("pid-file", path, f"a writable path ({error.strerror})") from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
