"""One model family per module, and the registry that finds a folder's family."""

from __future__ import annotations

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.cogvideox import CogVideoXFamily
from elastic_dit.families.flux import FluxFamily, FluxSchnellFamily
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.hunyuan_video import HunyuanVideoFamily
from elastic_dit.families.hunyuan_video15 import HunyuanVideo15Family
from elastic_dit.families.ltx import LTXFamily
from elastic_dit.families.pixart import PixArtFamily
from elastic_dit.families.qwen_image import QwenImageFamily
from elastic_dit.families.sd3 import StableDiffusion3Family
from elastic_dit.families.spec import FamilySpec
from elastic_dit.families.wan import WanFamily
from elastic_dit.families.wan22 import Wan22Family, Wan22ImageToVideoFamily
from elastic_dit.families.wan_i2v import WanImageToVideoFamily

__all__ = ["FAMILIES", "FamilySpec", "ServingHints", "family_of"]

FAMILIES: tuple[FamilySpec, ...] = (
    Wan22Family(),
    Wan22ImageToVideoFamily(),
    WanFamily(),
    WanImageToVideoFamily(),
    QwenImageFamily(),
    CogVideoXFamily(),
    PixArtFamily(),
    FluxSchnellFamily(),
    FluxFamily(),
    StableDiffusion3Family(),
    HunyuanVideoFamily(),
    HunyuanVideo15Family(),
    LTXFamily(),
)
"""All known families, the first that serves a folder being its own."""


def family_of(folder: ModelFolder) -> FamilySpec:
    """Family of the model in `folder`, by the pipeline class in its index.

    Raises
    ------
    UnsupportedModel
        Listing what is known.

    Examples
    --------
    >>> family_of(ModelFolder.open("embedded:shapes"))
    <family wan>
    """
    for family in FAMILIES:
        if family.serves(folder):
            family.check(folder)
            return family
    known = ", ".join(dict.fromkeys(name for family in FAMILIES for name in family.pipelines))
    raise UnsupportedModel(
        f"{folder.path}: {folder.pipeline} is of no known family; known pipelines: {known}"
    )
