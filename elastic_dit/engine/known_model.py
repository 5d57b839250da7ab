"""What an engine knows of a configured model before any weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from elastic_dit.catalog import ModelCard
from elastic_dit.engine.loading import load_tokenizer
from elastic_dit.engine.protocol import ModelSource
from elastic_dit.errors import ConfigError
from elastic_dit.families import FamilySpec, ServingHints, family_of
from elastic_dit.families.folder import ModelFolder

__all__ = ["KnownModel"]


@dataclass(frozen=True)
class KnownModel:
    """What is known of a configured model before any weights are loaded."""

    source: ModelSource
    folder: ModelFolder
    family: FamilySpec
    hints: ServingHints
    dtype: torch.dtype

    @classmethod
    def of(cls, source: ModelSource) -> KnownModel:
        """Read its configuration files.

        Raises
        ------
        UnsupportedModel, ConfigError
            Where it is of no known family, or its options are wrong.
        """
        folder = ModelFolder.open(source.path)
        family = family_of(folder)
        hints = ServingHints.of(folder, source.options, source.name)
        return cls(source, folder, family, hints, _float_dtype(source))

    @cached_property
    def card(self) -> ModelCard:
        """Limits and defaults."""
        return self.family.card(self.source.name, self.folder, self.hints)

    @cached_property
    def tokenizer(self) -> Any:
        """Loaded at the first use."""
        return load_tokenizer(self.folder, self.family.tokenizer)


def _float_dtype(source: ModelSource) -> torch.dtype:
    dtype = getattr(torch, source.dtype, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        field, allowed = f"models.{source.name}.dtype", "a floating point type such as bfloat16"
        raise ConfigError(field, source.dtype, allowed)
    return dtype
