"""One stage of one model, resident on one device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import torch

from elastic_dit.engine.classic import ClassicStage
from elastic_dit.engine.devices import release_memory
from elastic_dit.engine.guard import AbortGuard
from elastic_dit.engine.loading import load_component
from elastic_dit.engine.modular_stage import ModularStage
from elastic_dit.engine.sequence_parallel import SequenceParallel
from elastic_dit.engine.session import Session
from elastic_dit.engine.stub import config_stub
from elastic_dit.errors import ModelLoadError, UnsupportedParallelism
from elastic_dit.families import FamilySpec, ServingHints
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import GenerationRequest, Stage

__all__ = ["StageProgram", "StageRuntime", "frames_of"]


class StageProgram(Protocol):
    """How one stage of one kind of family runs; `given` is the request in the family's words."""

    @staticmethod
    def components(family: FamilySpec, folder: ModelFolder, stage: Stage) -> tuple[str, ...]:
        """Names of what the stage owns."""
        ...

    def encode(self, given: Mapping[str, Any], guided: bool) -> dict[str, Any]:
        """Conditioning of the DiT stage."""
        ...

    def session(
        self, given: Mapping[str, Any], guidance: Mapping[str, Any] | None, seed: int
    ) -> Session:
        """A new session of the DiT stage."""
        ...

    def decode(self, given: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """Videos or images as floats from 0 to 1."""
        ...


class StageRuntime:
    """Weights of one stage and the program that runs them.

    Parameters
    ----------
    family : FamilySpec
    hints : ServingHints
    stage : Stage
    program : StageProgram
        Over the loaded components.
    models : tuple of torch.nn.Module
        Those components that have weights.
    """

    def __init__(
        self,
        family: FamilySpec,
        hints: ServingHints,
        stage: Stage,
        program: StageProgram,
        models: tuple[torch.nn.Module, ...],
    ) -> None:
        self._family = family
        self._hints = hints
        self._stage = stage
        self._program: StageProgram | None = program
        self.models = models
        self.guard = AbortGuard(models)

    def __repr__(self) -> str:
        return f"<StageRuntime {self._family.name}/{self._stage} {self.nbytes / 1e6:.1f} MB>"

    @classmethod
    def load(
        cls,
        name: str,
        folder: ModelFolder,
        family: FamilySpec,
        hints: ServingHints,
        stage: Stage,
        dtype: torch.dtype,
        device: torch.device,
    ) -> StageRuntime:
        """Load a stage's own weights and nothing else.

        Raises
        ------
        ModelLoadError
            With the cause; whatever had been loaded by then is freed.
        """
        try:
            kind = ModularStage if family.blocks else ClassicStage
            names = kind.components(family, folder, stage)
            loaded = {n: load_component(folder, n, dtype, device) for n in names}
            stubs = {n: config_stub(folder, n, dtype) for n in family.stubs if n not in names}
            for stub_name, stub in stubs.items():
                family.fit_stub(stub_name, stub)
            owned = {n: component for n, component in loaded.items() if component is not None}
            program = kind(family, folder, stage, owned, stubs)
            models = tuple(c for c in owned.values() if isinstance(c, torch.nn.Module))
            return cls(family, hints, stage, program, models)
        except Exception as error:
            cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        # outside the handler: inside, the traceback would still hold what was loaded
        release_memory(device)
        raise ModelLoadError(name, stage, cause)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the weights; counted once, since to count them takes a millisecond."""
        return sum(
            tensor.nbytes
            for model in self.models
            for tensor in (*model.parameters(), *model.buffers())
        )

    def session(self, request: GenerationRequest) -> Session:
        """A new session of `request`; for the DiT stage."""
        guidance = self._family.guidance(request)
        return self._running.session(self._given(request), guidance, request.seed)

    @torch.no_grad()
    def run(self, request: GenerationRequest, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the encoder or decoder stage to its end.

        Returns
        -------
        dict
            After the encoder what later stages declare; after the decoder
            ``{"frames": uint8 tensor [T, H, W, 3]}``.
        """
        given = self._given(request)
        if self._stage is Stage.DECODER:
            return {"frames": frames_of(self._running.decode(given, inputs))}
        if request.image is not None:
            given["image"] = request.image.fitted(request.width, request.height)
        encoded = self._running.encode(given, self._family.guidance(request) is not None)
        return {name: value for name, value in encoded.items() if value is not None}

    @cached_property
    def parallel(self) -> SequenceParallel:
        """The degree of parallelism of the transformers; installed when first asked for.

        Raises
        ------
        UnsupportedParallelism
            Where the family is not divided.
        """
        if self._family.sequence is None:
            raise UnsupportedParallelism(f"{self._family.name} runs on one GPU only")
        return SequenceParallel(self.models, self._family.sequence)

    def tile(self, tiled: bool) -> None:
        """Let autoencoders work tile by tile, or not."""
        switch = "enable_tiling" if tiled else "disable_tiling"
        for model in self.models:
            if hasattr(model, switch):
                getattr(model, switch)()

    def close(self) -> None:
        """Let go of the weights."""
        self.guard.close()
        self.__dict__.pop("parallel", None)
        self.models = ()
        self._program = None

    @property
    def _running(self) -> StageProgram:
        assert self._program is not None, "the stage was closed"
        return self._program

    def _given(self, request: GenerationRequest) -> dict[str, Any]:
        return {**self._family.inputs(request, self._hints), "output_type": "pt"}


def frames_of(output: torch.Tensor) -> torch.Tensor:
    """Pixels of the first video or image of a batch.

    Parameters
    ----------
    output : tensor of float in [0, 1]
        ``[1, T, 3, H, W]`` for videos, ``[1, 3, H, W]`` for images, as diffusers' processors
        make for ``output_type="pt"``.

    Returns
    -------
    tensor of uint8, shape [T, H, W, 3]
        ``round(255 x)`` with ties to even: what diffusers makes of ``output_type="np"`` when it
        writes images (`numpy_to_pil`). It is done on the device, so that a quarter of the bytes
        leave it.
    """
    frames = output[0] if output.ndim == 5 else output[:1]
    return (frames.float() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
