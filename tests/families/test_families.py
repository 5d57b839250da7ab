from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from elastic_dit.catalog import ModelCard
from elastic_dit.errors import ConfigError, InvalidRequest, UnsupportedModel
from elastic_dit.families import FAMILIES, ServingHints, family_of
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import GenerationRequest

ENCODER = {"image_encoder": ["transformers", "CLIPVisionModel"]}
INDEX: dict[str, dict[str, Any]] = {"WanImageToVideoPipeline": ENCODER}
"""What a folder's index must hold besides the class."""
CONFIGS: dict[str, dict[str, dict[str, Any]]] = {
    "WanPipeline": {
        "vae": {"scale_factor_spatial": 8, "scale_factor_temporal": 4},
        "transformer": {"patch_size": [1, 2, 2], "num_attention_heads": 12},
    },
    "WanImageToVideoPipeline": {
        "vae": {"scale_factor_spatial": 8, "scale_factor_temporal": 4},
        "transformer": {"patch_size": [1, 2, 2], "num_attention_heads": 40},
    },
    "QwenImagePipeline": {
        "vae": {"temperal_downsample": [False, True, True]},
        "transformer": {"num_attention_heads": 24},
    },
    "CogVideoXPipeline": {
        "vae": {"block_out_channels": [128, 256, 256, 512], "temporal_compression_ratio": 4},
        "transformer": {"patch_size": 2, "num_attention_heads": 30},
    },
    "PixArtSigmaPipeline": {
        "vae": {"block_out_channels": [128, 256, 512, 512]},
        "transformer": {"patch_size": 2, "num_attention_heads": 16},
    },
    "FluxPipeline": {
        "vae": {"block_out_channels": [128, 256, 512, 512]},
        "transformer": {"num_attention_heads": 24, "guidance_embeds": True},
    },
    "StableDiffusion3Pipeline": {
        "vae": {"block_out_channels": [128, 256, 512, 512]},
        "transformer": {"patch_size": 2, "num_attention_heads": 38},
    },
    "LTXPipeline": {
        "vae": {
            "spatio_temporal_scaling": [True, True, True, False],
            "patch_size": 4,
            "patch_size_t": 1,
        },
        "transformer": {"num_attention_heads": 32},
    },
    "HunyuanVideoPipeline": {
        "vae": {"spatial_compression_ratio": 8, "temporal_compression_ratio": 4},
        "transformer": {"patch_size": 2, "patch_size_t": 1, "num_attention_heads": 24},
    },
    "HunyuanVideo15Pipeline": {
        "vae": {"spatial_compression_ratio": 16, "temporal_compression_ratio": 4},
        "transformer": {"patch_size": 1, "patch_size_t": 1, "num_attention_heads": 16},
    },
}
MULTIPLES = {  # of the published models: pixels, frames, tokens
    "WanPipeline": (16, 4, 512),
    "WanImageToVideoPipeline": (16, 4, 512),
    "QwenImagePipeline": (16, 1, 512),
    "CogVideoXPipeline": (16, 8, 226),
    "PixArtSigmaPipeline": (16, 1, 300),
    "FluxPipeline": (16, 1, 512),
    "StableDiffusion3Pipeline": (16, 1, 256),
    "LTXPipeline": (32, 8, 128),
    "HunyuanVideoPipeline": (16, 4, 256),
    "HunyuanVideo15Pipeline": (16, 4, 1000),
}
SHAPES = {  # heads, tokens, text tokens of the default request of the published models
    "WanPipeline": (12, 21 * 30 * 52, None),
    "WanImageToVideoPipeline": (40, 21 * 30 * 52, None),
    "QwenImagePipeline": (24, 83 * 83, 5),
    "CogVideoXPipeline": (30, 13 * 30 * 45, 226),
    "PixArtSigmaPipeline": (16, 64 * 64, None),
    "FluxPipeline": (24, 64 * 64, 512),
    "StableDiffusion3Pipeline": (38, 64 * 64, 333),
    "LTXPipeline": (32, 21 * 15 * 22, None),
    "HunyuanVideoPipeline": (24, 33 * 45 * 80, 256),
    "HunyuanVideo15Pipeline": (16, 31 * 30 * 53, 1000),
}
ONE_LENGTH = ("WanImageToVideoPipeline", "HunyuanVideo15Pipeline")
"""Whose text is padded to what they were trained with and to nothing else."""


def folder_of(path: Path, pipeline: str, **index: Any) -> ModelFolder:
    path.mkdir(exist_ok=True)
    content = {"_class_name": pipeline, **INDEX.get(pipeline, {}), **index}
    (path / "model_index.json").write_text(json.dumps(content))
    for name, config in CONFIGS.get(pipeline, {}).items():
        (path / name).mkdir(exist_ok=True)
        (path / name / "config.json").write_text(json.dumps(config))
    return ModelFolder.open(str(path))


def request_for(card: ModelCard, **fields: Any) -> GenerationRequest:
    return card.sample({"prompt": "a cat", "request_id": "r", "seed": 0, **fields})


@pytest.mark.parametrize("pipeline", CONFIGS)
def test_a_card_comes_from_the_models_own_configuration(pipeline: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", pipeline)
    family = family_of(folder)
    card = family.card("m", folder, ServingHints())
    limits = card.size_multiple, card.frame_multiple, card.max_prompt_tokens
    assert limits == MULTIPLES[pipeline]
    request = request_for(card)
    assert request.width == card.defaults.width, "the defaults are within the limits"
    inputs = family.inputs(request, ServingHints(max_sequence_length=7))
    length = card.max_prompt_tokens if pipeline in ONE_LENGTH else 7
    assert inputs["max_sequence_length"] == length
    assert {"prompt", "height", "width"} <= inputs.keys()
    with pytest.raises(InvalidRequest, match="width = 33"):
        request_for(card, width=33)


@pytest.mark.parametrize("pipeline", CONFIGS)
def test_the_shape_of_a_request_comes_from_the_configuration(pipeline: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", pipeline)
    family = family_of(folder)
    card = family.card("m", folder, ServingHints())
    request = request_for(card)
    lengths = {"a cat": 9, "": 5}
    assert tuple(family.sequence_shape(request, folder, lengths.__getitem__)) == SHAPES[pipeline]


def test_every_family_is_tried_here() -> None:
    assert set(CONFIGS) == set(SHAPES) == {name for family in FAMILIES for name in family.pipelines}
    assert all(family.blocks or family.encode_returns for family in FAMILIES)


def test_the_embedded_model_has_its_own_limits() -> None:
    folder = ModelFolder.open("embedded:shapes")
    card = family_of(folder).card("shapes", folder, ServingHints.of(folder, None, "shapes"))
    assert (card.size_multiple, card.max_side, card.max_steps) == (16, 96, 100)
    assert (card.frame_multiple, card.max_frames, card.max_prompt_tokens) == (4, 17, 16)
    assert card.defaults.model_dump() == {
        "width": 64,
        "height": 64,
        "num_frames": 9,
        "fps": 8,
        "num_inference_steps": 12,
        "guidance_scale": 4.0,
    }


def test_options_of_a_deployment_go_over_the_folders_hints(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", "WanPipeline")
    stored = {"max_side": 64, "max_steps": 9, "defaults": {"width": 32, "height": 48}}
    (folder.path / "elastic_dit.json").write_text(json.dumps(stored))
    options = {"max_steps": 5, "defaults": {"width": 64}}
    card = family_of(folder).card("m", folder, ServingHints.of(folder, options, "m"))
    assert (card.max_side, card.max_steps) == (64, 5)
    assert (card.defaults.width, card.defaults.height) == (64, 48)
    assert card.defaults.num_frames == 81, "what nobody gives is the family's"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_stpes": 5}, r"models\.m\.options\.max_stpes = 5: must be one of max_sequence"),
        ({"max_steps": 0}, r"models\.m\.options\.max_steps = 0: must be greater than"),
        ({"defaults": {"width": "wide"}}, r"models\.m\.options\.defaults\.width = 'wide'"),
        ({"defaults": 3}, r"models\.m\.options\.defaults = 3: must be an object of any of width"),
        ({"defaults": {"size": 3}}, r"options\.defaults\.size = 3: must be one of width, height"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", "WanPipeline")
    with pytest.raises(ConfigError, match=message):
        ServingHints.of(folder, options, "m")


@pytest.mark.parametrize("options", [None, {"max_steps": 5, "defaults": {"width": 64}}])
@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"defaults": None}, "defaults = None: must be an object of any of width, height"),
        ({"defaults": [64]}, "defaults = [64]: must be an object of any of width, height"),
        ({"defaults": {"width": 0}}, "defaults.width = 0: must be greater than or equal to 1"),
        ({"max_steps": "many"}, "max_steps = 'many': must be a valid integer"),
    ],
)
def test_a_wrong_field_of_the_folders_hints_is_named_with_the_file(
    stored: dict[str, Any], said: str, options: dict[str, Any] | None, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", "WanPipeline")
    file = folder.path / "elastic_dit.json"
    file.write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=re.escape(f"{file}: {said}")):
        ServingHints.of(folder, options, "m")


def test_an_unknown_family_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"SoraPipeline .* known pipelines: WanPipeline, W"):
        family_of(folder_of(tmp_path / "m", "SoraPipeline"))


@pytest.mark.parametrize(
    "index",
    [
        {"boundary_ratio": 0.875},
        {"transformer_2": ["diffusers", "WanTransformer3DModel"]},
        {"transformer_2": ["diffusers", "WanTransformer3DModel"], "boundary_ratio": 1.5},
        {"expand_timesteps": True},
    ],
)
def test_variants_of_wan_that_would_come_out_wrong_are_refused(
    index: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match="supported"):
        family_of(folder_of(tmp_path / "m", "WanPipeline", **index))


@pytest.mark.parametrize(
    ("index", "config"),
    [
        ({"image_encoder": [None, None]}, {}),
        ({"transformer_2": ["diffusers", "WanTransformer3DModel"]}, {}),
        ({"expand_timesteps": True}, {}),
        ({}, {"pos_embed_seq_len": 514}),
    ],
)
def test_image_to_video_that_would_come_out_wrong_is_refused(
    index: dict[str, Any], config: dict[str, Any], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", "WanImageToVideoPipeline", **index)
    file = folder.path / "transformer" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    with pytest.raises(UnsupportedModel, match="supported"):
        family_of(folder)


@pytest.mark.parametrize(
    ("pipeline", "ratio", "family"),
    [("WanPipeline", 0.875, "wan22"), ("WanImageToVideoPipeline", 0.9, "wan22_i2v")],
)
def test_a_second_transformer_makes_it_wan_2_2(
    pipeline: str, ratio: float, family: str, tmp_path: Path
) -> None:
    second = {"transformer_2": ["diffusers", "WanTransformer3DModel"], "boundary_ratio": ratio}
    assert family_of(folder_of(tmp_path / "m", pipeline, **second)).name == family


@pytest.mark.parametrize("config", [{"guidance_embeds": False}, {}])
def test_flux_without_guidance_is_schnell_and_takes_half_the_text(
    config: dict[str, Any], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", "FluxPipeline")
    file = folder.path / "transformer" / "config.json"
    file.write_text(json.dumps({"num_attention_heads": 24, **config}))
    family = family_of(folder)
    card = family.card("m", folder, ServingHints())
    assert (family.name, card.max_prompt_tokens) == ("flux_schnell", 256)
    request = request_for(card)
    assert (request.num_inference_steps, request.guidance_scale) == (4, 0.0)
    assert family.inputs(request, ServingHints())["max_sequence_length"] == 256
    assert family.sequence_shape(request, folder, len).text_tokens == 256


@pytest.mark.parametrize(
    ("pipeline", "longest"),
    [("FluxPipeline", 512), ("StableDiffusion3Pipeline", 512), ("QwenImagePipeline", 1024)],
)
def test_no_longer_text_than_the_pipeline_itself_takes(
    pipeline: str, longest: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", pipeline)
    family = family_of(folder)
    card = family.card("m", folder, ServingHints(max_sequence_length=longest))
    assert card.max_prompt_tokens == longest
    said = (
        rf"models\.m\.max_sequence_length = {longest + 1}: must be at most {longest}, .*{pipeline}"
    )
    with pytest.raises(ConfigError, match=said):
        family.card("m", folder, ServingHints(max_sequence_length=longest + 1))


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"_class_name": 3}'])
def test_a_damaged_index_is_an_error_of_ours(content: str, tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(content)
    with pytest.raises(UnsupportedModel, match=str(tmp_path)):
        family_of(ModelFolder.open(str(tmp_path)))


def test_guidance_of_one_or_less_is_none(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", "WanPipeline")
    family = family_of(folder)
    card = family.card("m", folder, ServingHints())
    options = {"prompt": "a cat", "request_id": "r", "seed": 0}
    assert family.guidance(card.complete({**options, "guidance_scale": 1.0})) is None
    assert family.guidance(card.complete({**options, "guidance_scale": 1.5})) == {
        "guidance_scale": 1.5
    }
