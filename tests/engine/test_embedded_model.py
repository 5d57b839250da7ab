"""The model inside the package, through the engine and through plain diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elastic_dit.engine.protocol import ModelSource, Payload
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.models import embedded_model_path
from elastic_dit.request import Stage, StageKey
from tests.engine.contexts import Always


@pytest.fixture(scope="module")
def shapes() -> TorchEngine:
    engine = TorchEngine([ModelSource(name="shapes", path="embedded:shapes")], "cpu", 1)
    for stage in Stage:
        engine.load(StageKey("shapes", stage))
    return engine


@pytest.fixture(scope="module")
def plain() -> Any:
    from diffusers import WanPipeline

    pipeline = WanPipeline.from_pretrained(str(embedded_model_path()), dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.mark.parametrize(
    "options",
    [
        {"width": 48, "height": 48, "num_frames": 9},
        {"width": 96, "height": 64, "num_frames": 1, "guidance_scale": 1.0},
    ],
)
def test_it_draws_what_the_plain_pipeline_draws(
    options: dict[str, Any], shapes: TorchEngine, plain: Any
) -> None:
    request = shapes.card("shapes").complete(
        {
            "prompt": "a red circle moving left on a black background",
            "request_id": "r",
            "seed": 11,
            "num_inference_steps": 3,
            **options,
        }
    )
    payload: Payload | None = None
    for stage in Stage:
        payload = shapes.run(stage, request, payload, Always()).payload
    expected = plain(
        prompt=request.prompt,
        negative_prompt="",
        height=request.height,
        width=request.width,
        num_frames=request.num_frames,
        num_inference_steps=3,
        guidance_scale=request.guidance_scale,
        generator=torch.Generator().manual_seed(11),
        max_sequence_length=16,
        output_type="np",
    ).frames[0]
    assert payload is not None
    assert np.array_equal(payload["frames"], (expected * 255).round().astype("uint8"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 1), ("a red circle", 4), ("\N{GRINNING FACE} \N{CJK UNIFIED IDEOGRAPH-7EA2}", 3)],
)
def test_its_tokenizer_counts_words(text: str, tokens: int, shapes: TorchEngine) -> None:
    assert shapes.count_tokens("shapes", text) == tokens
