"""Writes the trained parts as one diffusers folder in half precision."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline
from transformer import load_pipeline

__all__ = ["export"]

TOKENIZER_CLASS = "PreTrainedTokenizerFast"
FORGOTTEN = ("_name_or_path",)
"""Config entries that name folders of the training machine."""


def export(autoencoder: Path, checkpoint: Path, folder: Path) -> int:
    """Assemble the pipeline from an autoencoder and a checkpoint's averaged weights.

    Parameters
    ----------
    autoencoder : pathlib.Path
        Folder of the autoencoder; one with a fine-tuned decoder may follow the one that the
        transformer was trained with.
    checkpoint : pathlib.Path
        File written by `transformer.Trainer.save`.
    folder : pathlib.Path
        Where to write; its model card, if any, is kept.

    Returns
    -------
    int
        Bytes written.
    """
    _save(load_pipeline(autoencoder, checkpoint), folder)
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _save(pipeline: WanPipeline, folder: Path) -> None:
    for part in ("text_encoder", "transformer", "vae"):
        shutil.rmtree(folder / part, ignore_errors=True)
        # Not Pipeline.to: that keeps some layers in single precision.
        getattr(pipeline, part).to(torch.float16)
    pipeline.save_pretrained(folder, safe_serialization=True)
    for file in folder.glob("*/config.json"):
        _edit(file, dict.fromkeys(FORGOTTEN))
    # transformers 5 writes a class name that transformers 4 does not know; both know this one.
    _edit(folder / "model_index.json", {"tokenizer": ["transformers", TOKENIZER_CLASS]})
    _edit(folder / "tokenizer" / "tokenizer_config.json", {"tokenizer_class": TOKENIZER_CLASS})


def _edit(file: Path, changes: dict[str, Any]) -> None:
    """Change entries of a JSON file; None removes one."""
    entries = {**json.loads(file.read_text()), **changes}
    kept = {key: value for key, value in entries.items() if value is not None or key not in changes}
    file.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
