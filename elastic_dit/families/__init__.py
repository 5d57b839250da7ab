"""One model family per module, and the registry that finds a folder's family."""

from __future__ import annotations

from elastic_dit.errors import UnsupportedModel
from elastic_dit.families.cogvideox import CogVideoXFamily
from elastic_dit.families.folder import ModelFolder
from elastic_dit.families.hints import ServingHints
from elastic_dit.families.pixart import PixArtFamily
from elastic_dit.families.qwen_image import QwenImageFamily
from elastic_dit.families.spec import FamilySpec
from elastic_dit.families.wan import WanFamily

__all__ = ["FAMILIES", "FamilySpec", "ServingHints", "family_of"]

FAMILIES: tuple[FamilySpec, ...] = (
    WanFamily(),
    QwenImageFamily(),
    CogVideoXFamily(),
    PixArtFamily(),
)
"""All known families; to add one, write its module and name it here."""


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
        if folder.pipeline in family.pipelines:
            family.check(folder)
            return family
    known = ", ".join(name for family in FAMILIES for name in family.pipelines)
    raise UnsupportedModel(
        f"{folder.path}: {folder.pipeline} is of no known family; known pipelines: {known}"
    )
