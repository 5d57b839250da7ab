"""All of Modular Diffusers' changing surface, in one place and tied to one version.

Every family's blocks share one contract: leaves named ``*_encoder``, ``denoise.*`` and
``decode``, each declaring its inputs, outputs and components. From it follow the three stages,
what crosses their borders and which weights each needs, with no code for single families.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from elastic_dit.errors import UnsupportedModel
from elastic_dit.request import Stage

__all__ = [
    "SUPPORTED_SERIES",
    "DenoiseLoop",
    "StageBlocks",
    "check_version",
    "fresh",
    "new_state",
    "own_parts",
    "own_pipeline",
    "part_state",
    "run_blocks",
    "stage_blocks",
    "stage_pipeline",
]

SUPPORTED_SERIES = "0.42."
"""Series of diffusers whose block loop this module knows."""


def check_version(version: str | None = None) -> None:
    """Refuse a diffusers that this module was not written for.

    Raises
    ------
    UnsupportedModel
        Saying which is installed and which is needed.

    Examples
    --------
    >>> check_version("0.43.0")
    Traceback (most recent call last):
    elastic_dit.errors.UnsupportedModel: diffusers 0.43.0 is installed, but 0.42.* is needed
    """
    if version is None:
        import diffusers

        version = str(diffusers.__version__)
    if not version.startswith(SUPPORTED_SERIES):
        raise UnsupportedModel(
            f"diffusers {version} is installed, but {SUPPORTED_SERIES}* is needed"
        )


@dataclass(frozen=True, slots=True)
class StageBlocks:
    """One stage of a family.

    Attributes
    ----------
    blocks : SequentialPipelineBlocks
        The stage's leaf blocks in order.
    components : tuple of str
        Names of the components it uses.
    gives : frozenset of str
        Names of the values that later stages use.
    kinds : mapping of str to str
        Group (diffusers' ``kwargs_type``) of the values that belong to one.
    """

    blocks: Any
    components: tuple[str, ...]
    gives: frozenset[str]
    kinds: Mapping[str, str]


@cache
def stage_blocks(name: str, trigger: frozenset[tuple[str, bool]]) -> dict[Stage, StageBlocks]:
    """Split the blocks class `name` into stages.

    Parameters
    ----------
    name : str
        Class in ``diffusers``, such as ``WanBlocks``.
    trigger : frozenset of (str, bool)
        Inputs that select among conditional blocks.
    """
    check_version()
    import diffusers
    from diffusers.modular_pipelines import SequentialPipelineBlocks

    for noisy in ("modular_pipelines.modular_pipeline", "guiders.guider_utils"):
        # blocks log a traceback for every exception, also for the one that stops a stage
        logging.getLogger(f"diffusers.{noisy}").setLevel(logging.CRITICAL)
    leaves: dict[Stage, dict[str, Any]] = {stage: {} for stage in Stage}
    flat = getattr(diffusers, name)().get_execution_blocks(**dict(trigger)).sub_blocks
    for leaf, block in flat.items():
        leaves[_stage_of(leaf)][leaf] = block
    parts = {s: SequentialPipelineBlocks.from_blocks_dict(part) for s, part in leaves.items()}
    kinds = {
        value.name: value.kwargs_type
        for part in parts.values()
        for value in (*part.inputs, *part.intermediate_outputs)
        if value.name and value.kwargs_type
    }
    return {
        stage: StageBlocks(part, tuple(part.component_names), _gives(parts, stage), kinds)
        for stage, part in parts.items()
    }


def _stage_of(leaf: str) -> Stage:
    top = leaf.split(".", maxsplit=1)[0]
    if top == "denoise":
        return Stage.DIT
    return Stage.DECODER if "decode" in top else Stage.ENCODER


def _gives(parts: Mapping[Stage, Any], stage: Stage) -> frozenset[str]:
    order = tuple(Stage)
    later = order[order.index(stage) + 1 :]
    return frozenset(name for each in later for name in parts[each].input_names)


def stage_pipeline(
    stage: StageBlocks,
    components: Mapping[str, Any],
    stubs: Mapping[str, Any],
    index: Mapping[str, Any],
) -> Any:
    """Pipeline object over loaded components.

    Parameters
    ----------
    stage : StageBlocks
    components : mapping of str to object
        What the stage owns.
    stubs : mapping of str to object
        Stand-ins for what other stages own; not components, so no device or dtype is read there.
    index : mapping of str to Any
        Content of the model's ``model_index.json``: settings that the blocks declare are taken
        from it, such as where Wan 2.2 changes its transformer.
    """
    pipeline = stage.blocks.init_pipeline()
    declared = (setting.name for setting in stage.blocks.expected_configs)
    settings = {name: index[name] for name in declared if index.get(name) is not None}
    pipeline.update_components(**components, **settings)
    for name, stub in stubs.items():
        if name not in stage.components:
            object.__setattr__(pipeline, name, stub)
    return pipeline


def own_pipeline(pipeline: Any, guidance: Mapping[str, Any] | None) -> Any:
    """Pipeline for one request: own scheduler and guider, shared models.

    Both are mutable state of a running loop: two requests on one scheduler fail or disturb each
    other. A shallow copy takes a fraction of the 5 ms that ``init_pipeline`` takes.

    Parameters
    ----------
    pipeline : ModularPipeline
    guidance : mapping or None
        Attributes to set on the guider; None switches guidance off.
    """
    from diffusers.guiders import BaseGuidance

    own = copy.copy(pipeline)
    for name, component in own_parts(pipeline).items():
        twin = fresh(component)
        object.__setattr__(own, name, twin)
        if isinstance(twin, BaseGuidance):
            vars(twin).update(guidance or {}, _enabled=guidance is not None)
    return own


def own_parts(pipeline: Any) -> dict[str, Any]:
    """Components that hold the state of a running loop: schedulers and guiders."""
    from diffusers import SchedulerMixin
    from diffusers.guiders import BaseGuidance

    kinds = (SchedulerMixin, BaseGuidance)
    return {name: part for name, part in pipeline.components.items() if isinstance(part, kinds)}


def part_state(part: Any) -> dict[str, Any]:
    """Attributes of a scheduler or guider, its unchanging configuration left out."""
    return {name: value for name, value in vars(part).items() if name != "_internal_dict"}


def fresh(part: Any) -> Any:
    """Independent copy of a scheduler or guider."""
    twin = copy.copy(part)
    vars(twin).update(copy.deepcopy(part_state(part)))
    return twin


def new_state(stage: StageBlocks, inputs: Mapping[str, Any]) -> Any:
    """Pipeline state that holds `inputs` and the stage's defaults."""
    from diffusers.modular_pipelines import PipelineState

    state = PipelineState()
    for declared in stage.blocks.inputs:
        if declared.name:
            value = inputs.get(declared.name, declared.default)
            state.set(declared.name, value, declared.kwargs_type)
    for name in (stage.gives & inputs.keys()) - state.values.keys():
        state.set(name, inputs[name], stage.kinds.get(name))
    return state


def run_blocks(stage: StageBlocks, pipeline: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run all of a stage's blocks at once; its whole state."""
    state = new_state(stage, inputs)
    for block in pipeline.blocks.sub_blocks.values():
        _, state = block(pipeline, state)
    return dict(state.values)


class DenoiseLoop:
    """The denoise stage taken apart: blocks before the loop, single steps, blocks after it.

    The family's own loop is never copied. Its ``__call__`` runs once with a recording
    ``loop_step``, which yields the state before the loop and the arguments of every step
    without computing; after the last step it runs once more with a ``loop_step`` that hands it
    the final state, for whatever it does after the loop.
    """

    def __init__(self, pipeline: Any) -> None:
        from diffusers.modular_pipelines import LoopSequentialPipelineBlocks

        self.pipeline = pipeline
        blocks = list(pipeline.blocks.sub_blocks.values())
        loops = [i for i, b in enumerate(blocks) if isinstance(b, LoopSequentialPipelineBlocks)]
        if len(loops) != 1:
            raise UnsupportedModel(f"the denoise stage has {len(loops)} loops, must have 1")
        at = loops[0]
        self.before, self.after = blocks[:at], blocks[at + 1 :]
        self._loop = copy.copy(blocks[at])  # own, because its loop_step is replaced
        self._loop.set_progress_bar_config(disable=True)

    def record(self, state: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Block state before the loop and arguments of each step."""
        seen: list[Any] = []
        steps: list[dict[str, Any]] = []

        def loop_step(pipeline: Any, block_state: Any, **step: Any) -> tuple[Any, Any]:
            seen[:] = [block_state]
            steps.append(step)
            return pipeline, block_state

        with self._replaced(loop_step=loop_step, set_block_state=lambda *_: None):
            self._loop(self.pipeline, state)
        return seen[0], steps

    def step(self, block_state: Any, step: Mapping[str, Any]) -> Any:
        """Block state after one step."""
        return self._loop.loop_step(self.pipeline, block_state, **step)[1]

    def conclude(self, state: Any, block_state: Any) -> Any:
        """Pipeline state after the loop and all that follows it."""
        with self._replaced(loop_step=lambda pipeline, _, **__: (pipeline, block_state)):
            self._loop(self.pipeline, state)
        for block in self.after:
            _, state = block(self.pipeline, state)
        return state

    @contextmanager
    def _replaced(self, **methods: Any) -> Iterator[None]:
        vars(self._loop).update(methods)
        try:
            yield
        finally:
            for name in methods:
                vars(self._loop).pop(name)
