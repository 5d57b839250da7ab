"""The files in ``configs/`` are read by the code they configure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from elastic_dit.cli.local_serving import demo_config
from elastic_dit.config import Config
from elastic_dit.control.dispatch import dispatch_policies
from elastic_dit.control.placement import make_placement
from elastic_dit.families import FAMILIES, ServingHints, family_of
from tests.families.test_families import folder_of

FOLDER = Path(__file__).parents[1] / "configs"
FILES = sorted(FOLDER.glob("*.yaml"))
SECOND = {"transformer_2": ["diffusers", "WanTransformer3DModel"], "boundary_ratio": 0.9}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "cogvideox-5b": ("CogVideoXPipeline", {}),
    "flux.1-dev": ("FluxPipeline", {}),
    "hunyuanvideo": ("HunyuanVideoPipeline", {}),
    "hunyuanvideo-1.5": ("HunyuanVideo15Pipeline", {}),
    "ltx-video": ("LTXPipeline", {}),
    "opensora-ddit": ("WanPipeline", {}),
    "pixart-sigma": ("PixArtSigmaPipeline", {}),
    "qwen-image": ("QwenImagePipeline", {}),
    "sd3.5-large": ("StableDiffusion3Pipeline", {}),
    "wan2.1-i2v-14b": ("WanImageToVideoPipeline", {}),
    "wan2.1-t2v-1.3b": ("WanPipeline", {}),
    "wan2.1-t2v-14b": ("WanPipeline", {}),
    "wan2.2-i2v-a14b": ("WanImageToVideoPipeline", SECOND),
    "wan2.2-t2v-a14b": ("WanPipeline", SECOND),
}
"""What the folders hold that the files name: pipeline, and the rest of its index."""


def leaves(model: BaseModel, prefix: str = "") -> set[str]:
    """Dotted names of all settings."""
    found: set[str] = set()
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            found |= leaves(value, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


def named(settings: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= named(value, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


def test_demo_names_every_setting_as_the_demo_has_it() -> None:
    path = FOLDER / "demo.yaml"
    assert Config.load(path) == demo_config()
    written = named(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert written == leaves(Config()), "a new setting is explained in configs/demo.yaml too"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid(path: Path) -> None:
    config = Config.load(path)
    assert config.control.dispatch in dispatch_policies()
    assert make_placement(config.placement, [model.name for model in config.models])


@pytest.mark.parametrize("stem", MODELS)
def test_what_a_file_says_of_its_model_fits_that_model(stem: str, tmp_path: Path) -> None:
    pipeline, index = MODELS[stem]
    folder = folder_of(tmp_path / "model", pipeline, **index)
    [model] = Config.load(FOLDER / f"{stem}.yaml").models
    hints = ServingHints.of(folder, model.options, model.name)
    card = family_of(folder).card(model.name, folder, hints)
    request = card.sample({"prompt": "a cat", "request_id": "r", "seed": 0})
    assert (request.width, request.height) == (card.defaults.width, card.defaults.height)


def test_every_family_has_a_deployment() -> None:
    assert {path.stem for path in FILES} == {*MODELS, "demo"}
    served = {pipeline for pipeline, _ in MODELS.values()}
    assert served == {name for family in FAMILIES for name in family.pipelines}


@pytest.mark.parametrize("stem", MODELS)
def test_every_file_says_how_it_is_used_and_what_it_needs(stem: str) -> None:
    text = (FOLDER / f"{stem}.yaml").read_text(encoding="utf-8")
    assert f"elastic-dit-worker tcp://SCHEDULER:8786 --config configs/{stem}.yaml" in text
    assert "Memory, in " in text
    assert all(f"#   {stage}  " in text for stage in ("encoder", "dit    ", "decoder"))
    assert all(len(line) <= 100 for line in text.splitlines())
