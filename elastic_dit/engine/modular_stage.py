"""Stages of families that have Modular Diffusers blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_dit.engine import modular
from elastic_dit.engine.modular_session import ModularSession
from elastic_dit.engine.session import Session
from elastic_dit.families import FamilySpec
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import Stage

__all__ = ["ModularStage"]


class ModularStage:
    """A `StageProgram` over a family's blocks, which declare all it needs to know.

    Parameters
    ----------
    family : FamilySpec
        One with `FamilySpec.blocks`.
    folder : ModelFolder
    stage : Stage
    components, stubs : mapping of str to object
        What the stage owns, and stand-ins for what it only reads.
    """

    def __init__(
        self,
        family: FamilySpec,
        folder: ModelFolder,
        stage: Stage,
        components: Mapping[str, Any],
        stubs: Mapping[str, Any],
    ) -> None:
        self._stage = _blocks_of(family)[stage]
        self._pipeline = modular.stage_pipeline(self._stage, components, stubs, folder.index)

    @staticmethod
    def components(family: FamilySpec, folder: ModelFolder, stage: Stage) -> tuple[str, ...]:  # noqa: ARG004
        """Names of what the stage owns."""
        return _blocks_of(family)[stage].components

    def session(
        self, given: Mapping[str, Any], guidance: Mapping[str, Any] | None, seed: int
    ) -> Session:
        """A session with own scheduler and guider."""
        pipeline = modular.own_pipeline(self._pipeline, guidance)
        return ModularSession(self._stage, pipeline, given, seed)

    def encode(self, given: Mapping[str, Any], guided: bool) -> dict[str, Any]:  # noqa: ARG002
        """What later stages declare of the encoder's values."""
        # guidance stays on for the encoder: blocks of some families leave the negative
        # embedding undefined without it, and its cost is one short text
        pipeline = modular.own_pipeline(self._pipeline, {})
        values = modular.run_blocks(self._stage, pipeline, given)
        names = (self._stage.gives & values.keys()) - given.keys()
        return {name: values[name] for name in sorted(names)}

    def decode(self, given: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """Videos or images as floats from 0 to 1."""
        pipeline = modular.own_pipeline(self._pipeline, {})
        values = modular.run_blocks(self._stage, pipeline, {**inputs, **given})
        return values["videos" if "videos" in values else "images"]


def _blocks_of(family: FamilySpec) -> dict[Stage, modular.StageBlocks]:
    assert family.blocks is not None
    return modular.stage_blocks(family.blocks, frozenset(family.trigger.items()))
