from __future__ import annotations

import pytest

from elastic_dit.cluster.launch import devices as module
from elastic_dit.cluster.launch.devices import find_devices
from elastic_dit.errors import ConfigError


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "_count_gpus", lambda: 0)


def test_each_process_sees_its_own_gpu_first() -> None:
    found = find_devices("3,GPU-aa,7")
    assert [device.visible for device in found] == ["3,GPU-aa,7", "GPU-aa,7,3", "7,3,GPU-aa"]
    assert [device.index for device in found] == [0, 1, 2]
    assert {device.torch_device for device in found} == {"cuda:0"}


def test_the_environment_then_the_driver_say_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_count_gpus", lambda: 2)
    assert [device.visible for device in find_devices()] == ["0,1", "1,0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    assert [device.visible for device in find_devices()] == ["5,6", "6,5"]
    assert [device.visible for device in find_devices("1")] == ["1"]


@pytest.mark.parametrize("visible", ["", "-1"])
def test_hidden_gpus_are_none(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(ConfigError, match="none was found"):
        find_devices()


@pytest.mark.parametrize(
    ("devices", "virtual"), [("x", 0), ("0,0", 0), ("", 0), ("0,,1", 0), ("0", 2), (None, -1)]
)
def test_wrong_devices_are_named(devices: str | None, virtual: int) -> None:
    with pytest.raises(ConfigError, match=r"devices|virtual-gpus"):
        find_devices(devices, virtual)
