"""Wan 2.1 image-to-video: the encoder stage also encodes the picture, twice over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.wan import WanFamily

__all__ = ["WanImageToVideoFamily"]


class WanImageToVideoFamily(WanFamily):
    """Wan 2.1 I2V in all sizes.

    CLIP's vision encoder and the VAE turn the picture into embeddings and into latents of a
    first frame. Both are conditioning, so both models belong to the encoder stage, and the VAE's
    weights lie there as well as with the decoder.
    """

    name = "wan_i2v"
    pipelines = ("WanImageToVideoPipeline",)
    blocks = "WanImage2VideoAutoBlocks"
    trigger: ClassVar[Mapping[str, bool]] = {"prompt": True, "image": True}
    stubs = ("vae", "transformer")
    needs_image = True

    def check(self, folder: ModelFolder) -> None:
        """Refuse what takes a last frame too, and what has no image encoder: Wan 2.2."""
        super().check(folder)
        if folder.component("image_encoder") is None:
            raise UnsupportedModel(f"{folder.path}: Wan without an image encoder is not supported")
        if folder.config("transformer").get("pos_embed_seq_len") is not None:
            raise UnsupportedModel(f"{folder.path}: Wan with a last frame is not supported")

    def text_length(self, hints: ServingHints) -> int:  # noqa: ARG002
        """The transformer tells text from picture by this length and by no other."""
        return self.max_sequence_length
