"""Wan 2.2 with two transformers: one for the noisy steps, one for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.wan import WanFamily

__all__ = ["Wan22Family", "Wan22ImageToVideoFamily"]


class Wan22Family(WanFamily):
    """Wan 2.2 A14B T2V; both transformers take the same guidance scale."""

    name = "wan22"
    blocks = "Wan22Blocks"

    def serves(self, folder: ModelFolder) -> bool:
        """Told from Wan 2.1 by its second transformer."""
        return super().serves(folder) and folder.component("transformer_2") is not None

    def check(self, folder: ModelFolder) -> None:
        """Refuse what does not say where its transformers change over: blocks would guess."""
        ratio: Any = folder.index.get("boundary_ratio")
        if not isinstance(ratio, float) or not 0.0 < ratio < 1.0:
            raise UnsupportedModel(
                f"{folder.path}: boundary_ratio = {ratio}: only one between 0 and 1 is supported"
            )


class Wan22ImageToVideoFamily(Wan22Family):
    """Wan 2.2 A14B I2V: of the picture only its latents, so the encoder stage has a VAE too."""

    name = "wan22_i2v"
    pipelines = ("WanImageToVideoPipeline",)
    blocks = "Wan22Image2VideoBlocks"
    trigger: ClassVar[Mapping[str, bool]] = {"prompt": True, "image": True}
    stubs = ("vae", "transformer")
    needs_image = True
