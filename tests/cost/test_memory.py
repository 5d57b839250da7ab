"""Memory of stages on a GPU."""

from __future__ import annotations

import pytest

from elastic_dit.cost import LinearMemory, StageMemory, fits
from elastic_dit.errors import ConfigError
from elastic_dit.request import GenerationRequest, Stage, StageKey

DECODER = StageKey("m", Stage.DECODER)


def test_memory_of_a_stage_grows_with_the_video() -> None:
    memory = LinearMemory(
        {DECODER: StageMemory(weights_bytes=5, base_bytes=10, bytes_per_pixel=0.5)}
    )
    request = GenerationRequest.parse(
        request_id="r", model="m", prompt="p", width=4, height=2, num_frames=5, fps=8,
        num_inference_steps=1, guidance_scale=1.0, seed=0,
    )  # fmt: skip
    assert memory.weights_bytes(DECODER) == 5
    assert memory.activation_bytes(request, Stage.DECODER) == 10 + 20
    assert memory.activation_bytes(request, Stage.DIT) is None
    with pytest.raises(ConfigError, match=r"memory.base_bytes = -1"):
        StageMemory(weights_bytes=1, base_bytes=-1)


def test_weights_add_up_and_activations_take_turns() -> None:
    assert fits([10, 4], [10, 9], 24)
    assert not fits([10, 5], [10, 9], 24)
    assert fits([], [], 0)
