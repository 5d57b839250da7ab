"""Wan 2.2 text-to-video with two transformers: one for the noisy steps, one for the rest."""

from __future__ import annotations

from typing import Any

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.wan import WanFamily

__all__ = ["Wan22Family"]

BOUNDARY_RATIO = 0.875
"""Where diffusers' blocks change over: the value of all published weights for text-to-video."""


class Wan22Family(WanFamily):
    """Wan 2.2 A14B; both transformers take the same guidance scale."""

    name = "wan22"
    blocks = "Wan22Blocks"

    def serves(self, folder: ModelFolder) -> bool:
        """Told from Wan 2.1 by its second transformer."""
        return super().serves(folder) and folder.component("transformer_2") is not None

    def check(self, folder: ModelFolder) -> None:
        """Refuse another boundary, which the blocks would ignore."""
        ratio: Any = folder.index.get("boundary_ratio")
        if ratio != BOUNDARY_RATIO:
            raise UnsupportedModel(
                f"{folder.path}: boundary_ratio = {ratio}: only {BOUNDARY_RATIO} is supported"
            )
