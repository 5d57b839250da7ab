"""The files in ``configs/`` are read by the code they configure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from elastic_dit.cli.local_serving import demo_config
from elastic_dit.config import Config

FOLDER = Path(__file__).parents[1] / "configs"


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


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_is_valid(path: Path) -> None:
    from elastic_dit.families import ServingHints

    config = Config.load(path)
    for model in config.models:
        hints = ServingHints.model_validate(model.options)
        defaults = hints.defaults
        if defaults.width and defaults.height and hints.max_pixels:
            assert defaults.width * defaults.height <= hints.max_pixels
