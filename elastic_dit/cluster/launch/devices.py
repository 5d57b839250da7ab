"""The GPUs of this machine, real or virtual."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from elastic_dit.errors import ConfigError

__all__ = ["Device", "find_devices"]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of this machine.

    Attributes
    ----------
    index : int
        Its number on the machine, from 0.
    visible : str
        ``CUDA_VISIBLE_DEVICES`` of its process, empty for a virtual GPU.
    """

    index: int
    visible: str = ""

    @property
    def is_virtual(self) -> bool:
        """Whether it is a CPU that serves as if it were a GPU."""
        return not self.visible

    @property
    def torch_device(self) -> str:
        """Device that its process uses."""
        return "cpu" if self.is_virtual else "cuda:0"


def find_devices(devices: str | None = None, virtual_gpus: int = 0) -> tuple[Device, ...]:
    """Devices to serve from.

    Each process sees all of them, its own first, as dask-cuda arranges it: its own is always
    ``cuda:0`` and its peers stay reachable.

    Parameters
    ----------
    devices : str, optional
        Numbers or UUIDs such as ``0,1,2``; by default ``CUDA_VISIBLE_DEVICES``, else all.
    virtual_gpus : int
        Serve from CPUs instead, as if there were so many GPUs.

    Raises
    ------
    ConfigError
        Where there is no such device.

    Examples
    --------
    >>> [device.visible for device in find_devices("0,1,2")]
    ['0,1,2', '1,2,0', '2,0,1']
    >>> [device.torch_device for device in find_devices(virtual_gpus=2)]
    ['cpu', 'cpu']
    """
    if virtual_gpus < 0:
        raise ConfigError("virtual-gpus", virtual_gpus, "a whole number of 1 or more")
    if virtual_gpus and devices is not None:
        raise ConfigError("devices", devices, "left out where there are virtual GPUs")
    if virtual_gpus:
        return tuple(Device(index) for index in range(virtual_gpus))
    names = _given(devices) if devices is not None else _visible()
    if not names:
        raise ConfigError("devices", devices, "at least one GPU, or virtual GPUs: none was found")
    return tuple(
        Device(index, ",".join((*names[index:], *names[:index]))) for index in range(len(names))
    )


def _given(devices: str) -> Sequence[str]:
    names = [name.strip() for name in devices.split(",")]
    well_formed = all(name.isdecimal() or name.startswith(("GPU-", "MIG-")) for name in names)
    if not well_formed or len(set(names)) < len(names):
        raise ConfigError("devices", devices, "different GPU numbers or UUIDs, like 0,1,2")
    return names


def _visible() -> Sequence[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(_count_gpus())]


def _count_gpus() -> int:
    """GPUs that the driver names, without creating a CUDA context here."""
    import torch

    return int(torch.cuda.device_count())
