"""Components from a local diffusers folder: safetensors only, every tensor accounted for.

The libraries' own loaders fill weights that a file lacks with random numbers and warn; here
that is an error.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder

__all__ = ["load_component", "load_tokenizer", "quiet_libraries"]


def load_component(folder: ModelFolder, name: str, dtype: torch.dtype, device: torch.device) -> Any:
    """Load one component; None where the model has none.

    Parameters
    ----------
    folder : ModelFolder
    name : str
        As in ``model_index.json``.
    dtype : torch.dtype
        Of the weights; parameters the class keeps in float32 stay so.
    device : torch.device
        Where models go.

    Raises
    ------
    Exception
        Whatever the library raises for missing or damaged files.
    ValueError
        Where weights are missing, superfluous or of the wrong shape.
    UnsupportedModel
        Where the component's class is unknown.
    """
    entry = folder.component(name)
    if entry is None:
        return None
    kind = _class(*entry)
    if isinstance(kind, type) and issubclass(kind, torch.nn.Module):
        return _load_model(kind, folder, name, dtype, device)
    if "tokenizer" in name:
        return load_tokenizer(folder, name)
    return kind.from_pretrained(str(folder.path / name), local_files_only=True)


def load_tokenizer(folder: ModelFolder, name: str = "tokenizer") -> Any:
    """Tokenizer of the model, by the class that its index names."""
    entry = folder.component(name)
    if entry is None:
        raise UnsupportedModel(f"{folder.path}: the model has no {name}")
    return _class(*entry).from_pretrained(str(folder.path / name), local_files_only=True)


def quiet_libraries() -> None:
    """Switch off the libraries' loading bars and advice, which go to a user's terminal."""
    from diffusers.utils import logging as diffusers_logging
    from tqdm import tqdm
    from transformers.utils import logging as transformers_logging

    for library in (diffusers_logging, transformers_logging):
        library.disable_progress_bar()
        library.set_verbosity_error()
    # A bar, shown or not, takes a lock: by default a named semaphore for all processes, which one
    # that is killed leaves behind.
    tqdm.set_lock(threading.RLock())


def _class(library: str, name: str) -> Any:
    import diffusers
    import transformers

    known = {"diffusers": diffusers, "transformers": transformers}
    kind = getattr(known.get(library), name, None)
    if kind is None:
        raise UnsupportedModel(f"{library}.{name} is not known here")
    return kind


def _load_model(
    kind: Any, folder: ModelFolder, name: str, dtype: torch.dtype, device: torch.device
) -> Any:
    model, report = kind.from_pretrained(
        str(folder.path / name),
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
    )
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if found := sorted(map(str, report.get(what) or ())):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise ValueError(f"{name} has {what.replace('_', ' ')}: {found[0]}{more}")
    return model.to(device).eval().requires_grad_(False)
