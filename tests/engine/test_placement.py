from __future__ import annotations

import torch

from elastic_dit.engine.payload import pack, unpack
from elastic_dit.engine.placement import placed, to_device, to_host, to_places

META = torch.device("meta")  # an accelerator that every machine has


def test_a_snapshot_goes_back_to_where_each_tensor_was() -> None:
    shared = torch.ones(2, device=META)
    state = {
        "sigmas": torch.ones(3),
        "loop": {"latents": shared, "history": [None, shared, torch.ones(1)]},
        "pair": (torch.ones(1, device=META), 3),
    }
    indices = placed(state)
    assert indices == [1, 2, 4]
    host = to_device({k: v for k, v in state.items() if k == "sigmas"}, torch.device("cpu"))
    assert host["sigmas"] is state["sigmas"], "what is there already is not copied"

    travelled = unpack(*pack(_filled(state)))
    back = to_places(travelled, indices, META)
    assert back["sigmas"].device.type == "cpu"
    assert back["loop"]["latents"].device == META
    assert back["loop"]["history"][1].device == META
    assert back["loop"]["history"][2].device.type == "cpu"
    assert back["pair"][0].device == META
    assert back["pair"][1] == 3


def _filled(value: object) -> object:
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(item) for item in value)
    if isinstance(value, torch.Tensor) and value.device == META:
        return torch.zeros(value.shape)
    return value


def test_without_an_accelerator_nothing_is_copied() -> None:
    state = {"latents": torch.ones(1)}
    assert placed(state) == []
    assert to_places(state, [], META) is state
    assert to_host(state)["latents"] is state["latents"]
