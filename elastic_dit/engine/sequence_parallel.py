"""Sequence parallelism of a transformer, switched between two steps in microseconds.

Diffusers declares for its transformers which tensors to divide by tokens and where to put them
together (``_cp_plan``), and has hooks that do it. Its public switch, ``enable_parallelism``, works
once, for a fixed world, on GPUs only. Here the same hooks are installed once and read the group
from a place that changes; at degree 1 they do nothing.

All of diffusers' parallel surface is in this module and tied to the version that
`elastic_dit.engine.modular.check_version` demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import torch
from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.context_parallel import (
    ContextParallelGatherHook,
    ContextParallelSplitHook,
    _get_submodule_by_name,
)
from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput

from elastic_dit.engine.attention import Layout, UlyssesMode, share
from elastic_dit.engine.groups import Group
from elastic_dit.engine.modular import check_version
from elastic_dit.errors import UnsupportedParallelism
from elastic_dit.families.sequence import IMAGE, TEXT, Cut, SequencePlan

__all__ = ["SequenceParallel", "undivided"]

KEPT_LAYOUTS = 64
"""Layouts remembered; one request has one for each guidance branch and degree."""


class SequenceParallel:
    """The degree of parallelism of one model's transformers.

    Parameters
    ----------
    models : iterable of torch.nn.Module
        Transformers of one pipeline; they run one after another, never at once.
    plan : SequencePlan

    Raises
    ------
    UnsupportedParallelism
        Where the plan does not fit the model.
    """

    def __init__(self, models: Iterable[torch.nn.Module], plan: SequencePlan) -> None:
        check_version()
        self._live = _Live()
        for model in models:
            _divide(model, plan, self._live)
            _attend(model, plan, self._live)

    def __repr__(self) -> str:
        return f"<SequenceParallel over {self._live.group or 'one GPU'}>"

    @property
    def group(self) -> Group | None:
        """The group that the models run on; None for this GPU alone."""
        return self._live.group

    def use(self, group: Group | None) -> None:
        """Run on `group` from the next forward on; None or a group of one: alone."""
        self._live.group = group if group is not None and group.size > 1 else None
        self._live.lengths.clear()


def undivided() -> SequenceParallel:
    """For models that run on one GPU only."""
    return SequenceParallel((), SequencePlan(attention={}))


class _Live:
    """What all hooks of one model look at."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.lengths: dict[str, int] = {}
        """Tokens of each stream in the forward that runs now."""

    def part(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Tokens of a whole tensor that are this member's."""
        assert self.group is not None
        return tensor.tensor_split(self.group.size, dim=dim)[self.group.rank]

    def whole(self, part: torch.Tensor, dim: int) -> torch.Tensor:
        """All members' image tokens."""
        assert self.group is not None
        rows = share(self.lengths[IMAGE], self.group.size)
        return self.group.all_gather(part.movedim(dim, 0), rows).movedim(0, dim).contiguous()

    def layout(self, streams: tuple[str, ...]) -> Layout:
        """Where the tokens of joined streams lie."""
        assert self.group is not None
        return _layout(tuple(self.lengths[stream] for stream in streams), self.group.size)


@lru_cache(KEPT_LAYOUTS)
def _layout(lengths: tuple[int, ...], size: int) -> Layout:
    return Layout(lengths, size)


class _Split(ContextParallelSplitHook):  # type: ignore[misc]
    """Diffusers' hook with a degree that changes and shares that need not be even."""

    def __init__(self, cuts: Mapping[str | int, Any], live: _Live) -> None:
        super().__init__(cuts, None)
        self._live = live

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if (group := self._live.group) is None:
            return args, kwargs
        for stream in {IMAGE, TEXT} & self.metadata.keys():
            tensor, *_ = self.module_forward_metadata._get_parameter_from_args_kwargs(
                stream, args, kwargs
            )
            tokens = tensor.shape[self.metadata[stream].split_dim]
            if tokens < group.size:
                raise UnsupportedParallelism(
                    f"{tokens} tokens of {stream} cannot be divided over {group.size} GPUs"
                )
            self._live.lengths[stream] = tokens
        return super().pre_forward(module, *args, **kwargs)

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        return output if self._live.group is None else super().post_forward(module, output)

    def _prepare_cp_input(self, x: torch.Tensor, cp_input: Any) -> torch.Tensor:
        if cp_input.expected_dims not in (None, x.dim()):
            return x
        return self._live.part(x, cp_input.split_dim)


class _Gather(ContextParallelGatherHook):  # type: ignore[misc]
    def __init__(self, joins: Any, live: _Live) -> None:
        super().__init__(joins, None)
        self._live = live

    def post_forward(self, _module: torch.nn.Module, output: Any) -> Any:
        if self._live.group is None:
            return output
        if not isinstance(output, torch.Tensor):
            raise UnsupportedParallelism("a module that joins the sequence gives several outputs")
        return self._live.whole(output, self.metadata[0].gather_dim)


class _Attention(ModelHook):  # type: ignore[misc]
    """Runs one attention module over the whole sequence of the group."""

    def __init__(self, name: str, streams: tuple[str, ...], live: _Live) -> None:
        super().__init__()
        self._name = name
        self._streams = streams
        self._live = live

    def new_forward(self, _module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if (group := self._live.group) is None:
            return self.fn_ref.original_forward(*args, **kwargs)
        mode = UlyssesMode(group, self._live.layout(self._streams))
        with mode:
            output = self.fn_ref.original_forward(*args, **kwargs)
        if not mode.calls:
            # its keys were only this member's: the result would be wrong without a word
            raise UnsupportedParallelism(
                f"{self._name} uses an attention kernel other than torch's own"
            )
        return output


def _divide(model: torch.nn.Module, plan: SequencePlan, live: _Live) -> None:
    for name, entry in _plan_of(model, plan).items():
        found = _get_submodule_by_name(model, name)
        for module in found if isinstance(found, list) else [found]:
            registry = HookRegistry.check_if_exists_or_initialize(module)
            if isinstance(entry, Mapping):
                registry.register_hook(_Split(entry, live), f"elastic_dit_split_{name}")
            else:
                joins = list(entry) if isinstance(entry, (list, tuple)) else [entry]
                registry.register_hook(_Gather(joins, live), f"elastic_dit_join_{name}")


def _plan_of(model: torch.nn.Module, plan: SequencePlan) -> Mapping[str, Any]:
    """The plan in diffusers' own words."""
    if plan.cuts is None:
        own: Mapping[str, Any] | None = getattr(model, "_cp_plan", None)
        if not own:
            raise UnsupportedParallelism(f"{type(model).__name__} has no plan of its own")
        return own
    cuts = {
        module: {name: _input_of(cut) for name, cut in inputs.items()}
        for module, inputs in plan.cuts.items()
    }
    joins = {name: ContextParallelOutput(gather_dim=dim) for name, dim in plan.joins.items()}
    return {**cuts, **joins}


def _input_of(cut: Cut | tuple[Cut, ...]) -> Any:
    if isinstance(cut, Cut):
        return ContextParallelInput(cut.dim, cut.ndim, cut.output)
    return [_input_of(each) for each in cut]


def _attend(model: torch.nn.Module, plan: SequencePlan, live: _Live) -> None:
    for pattern, streams in {**plan.attention, **plan.some_attention}.items():
        found = _matching(model, pattern)
        if not found and pattern in plan.attention:
            raise UnsupportedParallelism(f"{type(model).__name__} has no {pattern}")
        for name, module in found.items():
            registry = HookRegistry.check_if_exists_or_initialize(module)
            registry.register_hook(_Attention(name, streams, live), "elastic_dit_attention")


def _matching(model: torch.nn.Module, pattern: str) -> dict[str, torch.nn.Module]:
    """Modules by name; a star in `pattern` stands for one part of a dotted name."""
    depth = pattern.count(".")
    return {
        name: module
        for name, module in model.named_modules()
        if name.count(".") == depth and fnmatchcase(name, pattern)
    }
