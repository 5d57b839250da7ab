"""Models that ship inside the package, small enough to run on one CPU core."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["EMBEDDED_MODELS", "embedded_model_path"]

EMBEDDED_MODELS = ("shapes",)
"""Names that `embedded_model_path` knows."""


def embedded_model_path(name: str = "shapes") -> Path:
    """Folder of a model that ships with the package.

    Parameters
    ----------
    name : str
        One of `EMBEDDED_MODELS`.

    Returns
    -------
    pathlib.Path
        A diffusers folder, ready for ``DiffusionPipeline.from_pretrained``. Its ``README.md``
        is the model card.

    Raises
    ------
    ValueError
        The package holds no model of that name.

    Examples
    --------
    >>> (embedded_model_path("shapes") / "model_index.json").is_file()
    True
    """
    if name not in EMBEDDED_MODELS:
        known = ", ".join(EMBEDDED_MODELS)
        raise ValueError(f"no embedded model is called {name!r}; known: {known}")
    return Path(str(files(__name__))) / name
