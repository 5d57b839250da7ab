from __future__ import annotations

from typing import Any

import pytest
import torch

from elastic_dit.engine.groups import Group, GroupKey
from elastic_dit.engine.state_transfer import broadcast_state, frozen
from elastic_dit.errors import TransferError
from tests.engine.members import members
from tests.engine.parallel_cases import table_of

DEADLINE_S = 20.0


def state() -> dict[str, Any]:
    latents = torch.arange(6.0).reshape(2, 3)
    return {
        "step": 3,
        "latents": latents,
        "outputs": [latents, None, torch.ones(3, dtype=torch.bfloat16)],
        "empty": torch.zeros(0, 4),
        "flag": torch.tensor(True),
        "generator": torch.Generator().manual_seed(5),
        "shape": (1, 2),
    }


@pytest.mark.parametrize("root", [0, 1])
def test_state_arrives_as_it_was(root: int) -> None:
    def take(address: str, gpu: int) -> dict[str, Any]:
        group = table_of(address, gpu, DEADLINE_S).get(GroupKey((0, 1), 0))
        nothing = broadcast_state(group, {"nothing": []}, root)
        got = broadcast_state(group, state() if group.rank == root else None, root)
        drawn = torch.rand(2, generator=got["generator"])
        shared = got["latents"] is got["outputs"][0] or gpu == root
        return {**got, "drawn": drawn, "shared": shared, "nothing": nothing}

    expected = state()
    drawn = torch.rand(2, generator=expected["generator"])
    with members() as start:
        for got in start.run(take, (0, 1)):
            assert torch.equal(got["latents"], expected["latents"])
            assert torch.equal(got["outputs"][2], expected["outputs"][2])
            assert got["outputs"][2].dtype is torch.bfloat16
            assert got["empty"].shape == (0, 4)
            assert got["flag"].item() is True
            assert (got["step"], got["shape"]) == (3, (1, 2))
            assert torch.equal(got["drawn"], drawn)
            assert got["shared"]
            assert got["nothing"] == {"nothing": []}


def test_only_plain_data_is_sent() -> None:
    group = Group(GroupKey((0, 1), 0), 0, None, torch.device("cpu"))
    with pytest.raises(TransferError, match=r"payload\.model"):
        broadcast_state(group, {"model": torch.nn.Linear(1, 1)}, 0)


def test_a_frozen_state_outlasts_the_step_that_draws_from_it() -> None:
    running = state()
    kept = frozen(running)
    first = torch.rand(2, generator=running["generator"])
    assert torch.equal(torch.rand(2, generator=kept["generator"]), first)
    assert kept["latents"] is running["latents"]
    running["outputs"][0] = None
    assert kept["outputs"][0] is not None
