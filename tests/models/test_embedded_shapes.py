"""The model that ships with the package: it is whole, small, and does what it is asked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from safetensors import safe_open

from elastic_dit.judging import Scene, judge
from elastic_dit.models import EMBEDDED_MODELS, embedded_model_path

SIZE_LIMIT = 8_000_000
STEPS, GUIDANCE_SCALE, TEXT_LENGTH, SEED = 12, 4.0, 16, 100


@pytest.fixture(scope="module")
def pipeline() -> WanPipeline:
    pipeline = WanPipeline.from_pretrained(embedded_model_path(), dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def generate(pipeline: WanPipeline, scenes: list[Scene], num_frames: int, size: int) -> np.ndarray:
    output = pipeline(
        prompt=[scene.prompt for scene in scenes],
        height=size,
        width=size,
        num_frames=num_frames,
        num_inference_steps=STEPS,
        guidance_scale=GUIDANCE_SCALE,
        max_sequence_length=TEXT_LENGTH,
        generator=[torch.Generator().manual_seed(SEED + index) for index in range(len(scenes))],
        output_type="np",
    )
    return np.round(output.frames * 255).astype(np.uint8)


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_a_model_is_small_and_has_a_card(name: str) -> None:
    folder = embedded_model_path(name)
    assert (folder / "README.md").is_file()
    assert sum(file.stat().st_size for file in folder.rglob("*")) <= SIZE_LIMIT


def test_unknown_models_are_named() -> None:
    with pytest.raises(ValueError, match="known: shapes"):
        embedded_model_path("corgis")


def test_configs_name_no_folder_of_the_training_machine() -> None:
    for file in embedded_model_path().rglob("*.json"):
        entries = json.loads(file.read_text())
        assert "_name_or_path" not in entries
        assert not any(isinstance(v, str) and Path(v).is_absolute() for v in entries.values())


def test_weights_are_half_precision_and_finite() -> None:
    files = list(embedded_model_path().rglob("*.safetensors"))
    assert len(files) == 3
    for file in files:
        with safe_open(file, "pt") as weights:
            for key in weights.keys():  # noqa: SIM118 (not a mapping)
                tensor = weights.get_tensor(key)
                assert tensor.dtype == torch.float16, key
                assert bool(torch.isfinite(tensor).all()), key


def test_every_part_is_a_library_class(pipeline: WanPipeline) -> None:
    modules = {type(part).__module__.split(".")[0] for part in pipeline.components.values() if part}
    assert modules == {"diffusers", "transformers"}
    assert pipeline.vae_scale_factor_spatial == 8
    assert pipeline.vae_scale_factor_temporal == 4
    assert pipeline.transformer.dtype == pipeline.vae.dtype == torch.float32


def test_the_tokenizer_knows_every_word_of_every_prompt(pipeline: WanPipeline) -> None:
    from elastic_dit.judging import all_scenes

    unknown = pipeline.tokenizer.unk_token_id
    tokens = pipeline.tokenizer([scene.prompt for scene in all_scenes()]).input_ids
    assert max(map(len, tokens)) <= TEXT_LENGTH
    assert not any(unknown in prompt for prompt in tokens)


@pytest.mark.parametrize(
    ("num_frames", "size", "scenes"),
    [
        (
            9,
            64,
            [
                Scene("red", "circle", "left", "black"),
                Scene("yellow", "triangle", "grow", "black"),
                Scene("cyan", "heart", "down", "gray"),
                Scene("green", "diamond", "shrink", "black"),
            ],
        ),
        (17, 48, [Scene("orange", "circle", "up", "black")]),
        (1, 96, [Scene("purple", "ring", "still", "white")]),
    ],
)
def test_generated_clips_show_what_was_asked(
    pipeline: WanPipeline, num_frames: int, size: int, scenes: list[Scene]
) -> None:
    clips = generate(pipeline, scenes, num_frames, size)
    assert clips.shape == (len(scenes), num_frames, size, size, 3)
    assert [judge(clip).differences(s) for clip, s in zip(clips, scenes, strict=True)] == [
        () for _ in scenes
    ]


def test_a_seed_gives_the_same_clip_again(pipeline: WanPipeline) -> None:
    scenes = [Scene("blue", "star", "right", "black")]
    once, again = (generate(pipeline, scenes, 1, 48) for _ in range(2))
    np.testing.assert_array_equal(once, again)
