"""A model on disk: an ordinary diffusers folder, read without loading any weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_dit.errors import UnsupportedModel
from elastic_dit.models import EMBEDDED_MODELS, embedded_model_path

__all__ = ["EMBEDDED_PREFIX", "ModelFolder"]

EMBEDDED_PREFIX = "embedded:"
"""Marks the path of a model inside this package, as in ``embedded:shapes``."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with ``model_index.json`` and one subfolder for each component.

    Attributes
    ----------
    path : Path
    index : mapping of str to Any
        Content of ``model_index.json``.

    Examples
    --------
    >>> folder = ModelFolder.open("embedded:shapes")
    >>> folder.pipeline, folder.component("transformer")
    ('WanPipeline', ('diffusers', 'WanTransformer3DModel'))
    >>> folder.config("vae")["z_dim"]
    16
    """

    path: Path
    index: Mapping[str, Any]

    @classmethod
    def open(cls, path: str) -> ModelFolder:
        """Read the index of the model at `path`.

        Parameters
        ----------
        path : str
            A local folder, or ``embedded:NAME``.

        Raises
        ------
        UnsupportedModel
            Where there is no such folder or no readable index in it.
        """
        folder = _resolve(path)
        if not folder.is_dir():
            raise UnsupportedModel(f"{path}: no such folder; models are local diffusers folders")
        return cls(folder, _read_json(folder / "model_index.json"))

    @property
    def pipeline(self) -> str:
        """Class name of the pipeline that the folder was saved from."""
        return str(self.index.get("_class_name"))

    def component(self, name: str) -> tuple[str, str] | None:
        """Library and class name of a component, None where the model has none."""
        entry = self.index.get(name)
        if not isinstance(entry, list) or len(entry) != 2 or None in entry:
            return None
        return str(entry[0]), str(entry[1])

    def config(self, name: str) -> dict[str, Any]:
        """Configuration of a component.

        Raises
        ------
        UnsupportedModel
            Where it is missing or no JSON object.
        """
        file = "scheduler_config.json" if name == "scheduler" else "config.json"
        return _read_json(self.path / name / file)

    def extra(self, file: str) -> dict[str, Any]:
        """Content of an optional JSON file next to the index, empty where there is none."""
        path = self.path / file
        return _read_json(path) if path.exists() else {}


def _resolve(path: str) -> Path:
    name = path.removeprefix(EMBEDDED_PREFIX)
    if name == path:
        return Path(path).expanduser()
    if name not in EMBEDDED_MODELS:
        known = ", ".join(EMBEDDED_PREFIX + known for known in EMBEDDED_MODELS)
        raise UnsupportedModel(f"{path}: no such embedded model; known: {known}")
    return embedded_model_path(name)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnsupportedModel(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UnsupportedModel(f"{path}: no valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise UnsupportedModel(f"{path}: no JSON object")
    return content
