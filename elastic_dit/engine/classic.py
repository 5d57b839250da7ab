"""Stages of families that have only a classic pipeline.

A classic pipeline is one long ``__call__``; it is split at its two natural seams. It takes the
embeddings that its public ``encode_prompt`` returns, so the encoder is that method alone; and
the last thing it does with latents is ``vae.decode``, so in the DiT stage a view stands in for
the VAE, whose ``decode`` ends the call and hands its exact arguments on.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from elastic_dit.engine import modular
from elastic_dit.engine.hosted import DecodeReached, HostedSession
from elastic_dit.engine.session import Session
from elastic_dit.families import FamilySpec
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import Stage

__all__ = ["ClassicStage"]

_PREFIXES = {
    Stage.ENCODER: ("text_encoder", "tokenizer"),
    Stage.DIT: ("transformer", "scheduler"),
    Stage.DECODER: ("vae",),
}


class ClassicStage:
    """A `StageProgram` over a classic pipeline.

    Parameters
    ----------
    family : FamilySpec
        One with `FamilySpec.encode_returns`.
    folder : ModelFolder
    stage : Stage
    components, stubs : mapping of str to object
        What the stage owns, and stand-ins for what it only reads.
    """

    def __init__(
        self,
        family: FamilySpec,
        folder: ModelFolder,
        stage: Stage,  # noqa: ARG002
        components: Mapping[str, Any],
        stubs: Mapping[str, Any],
    ) -> None:
        modular.check_version()
        import diffusers

        self._family = family
        kind = getattr(diffusers, folder.pipeline)
        have = {**{name: _View(stub) for name, stub in stubs.items()}, **components}
        needed = list(inspect.signature(kind.__init__).parameters.values())[1:]
        self._pipeline = kind(
            **{
                each.name: have.get(each.name)
                for each in needed
                if each.name in have or each.default is inspect.Parameter.empty
            }
        )

    @staticmethod
    def components(family: FamilySpec, folder: ModelFolder, stage: Stage) -> tuple[str, ...]:  # noqa: ARG004
        """Names of what the stage owns."""
        named = (name for name in folder.index if name.startswith(_PREFIXES[stage]))
        return tuple(name for name in named if folder.component(name))

    def session(
        self,
        given: Mapping[str, Any],
        guidance: Mapping[str, Any] | None,  # noqa: ARG002
        seed: int,
    ) -> Session:
        """A session around the pipeline's call, fed with embeddings instead of prompts."""
        texts = {"prompt": None, "negative_prompt": None}
        return HostedSession(self._pipeline, {**given, **texts}, seed)

    def encode(self, given: Mapping[str, Any], guided: bool) -> dict[str, Any]:
        """What the pipeline's ``encode_prompt`` returns, by name."""
        accepted = inspect.signature(self._pipeline.encode_prompt).parameters
        options = {**given, "do_classifier_free_guidance": guided}
        options["device"] = self._pipeline._execution_device
        returned = self._pipeline.encode_prompt(
            **{name: value for name, value in options.items() if name in accepted}
        )
        return dict(zip(self._family.encode_returns, returned, strict=True))

    def decode(self, given: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """Videos or images as floats from 0 to 1, as the pipeline's own processor makes them."""
        arguments = inputs["decode"]
        decoded = self._pipeline.vae.decode(*arguments["args"], **arguments["kwargs"])[0]
        processor = getattr(self._pipeline, "video_processor", None)
        if processor is not None:
            return processor.postprocess_video(decoded, output_type=given["output_type"])
        return self._pipeline.image_processor.postprocess(decoded, output_type=given["output_type"])


class _View:
    """Attributes of a stub without being a module: pipelines take their device from modules."""

    def __init__(self, stub: torch.nn.Module) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    def decode(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End the call that got as far as this."""
        raise DecodeReached(args, kwargs)
