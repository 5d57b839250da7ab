"""Sessions of families that have Modular Diffusers blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elastic_dit.engine import modular
from elastic_dit.engine.payload import plain
from elastic_dit.engine.placement import placed, to_places
from elastic_dit.engine.session import Snapshot

__all__ = ["ModularSession"]


class ModularSession:
    """A `Session` that runs the family's denoise blocks one step at a time.

    Parameters
    ----------
    stage : StageBlocks
        The family's denoise stage.
    pipeline : ModularPipeline
        The request's own (`modular.own_pipeline`).
    inputs : mapping of str to Any
        The request in the blocks' words.
    seed : int
        Of the initial noise; drawn on the CPU, so it does not depend on the device.
    """

    def __init__(
        self, stage: modular.StageBlocks, pipeline: Any, inputs: Mapping[str, Any], seed: int
    ) -> None:
        self._stage = stage
        self._pipeline = pipeline
        self._inputs = inputs
        self._seed = seed
        self._loop = modular.DenoiseLoop(pipeline)
        self._steps: list[dict[str, Any]] = []
        self._state: Any = None
        self._block_state: Any = None
        self._done = 0

    def __repr__(self) -> str:
        return f"<ModularSession {self.step_index}/{self.total_steps}>"

    @property
    def step_index(self) -> int:
        """Denoising steps done."""
        return self._done

    @property
    def total_steps(self) -> int:
        """Denoising steps to do in all."""
        return len(self._steps)

    @torch.no_grad()
    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Start from the encoder's payload, whose tensors are on the model's device."""
        generator = torch.Generator("cpu").manual_seed(self._seed)
        given = {**inputs, **self._inputs, "generator": generator}
        self._state = modular.new_state(self._stage, given)
        for block in self._loop.before:
            _, self._state = block(self._pipeline, self._state)
        self._block_state, self._steps = self._loop.record(self._state)
        self._done = 0

    @torch.no_grad()
    def step(self) -> None:
        """Do one denoising step."""
        self._block_state = self._loop.step(self._block_state, self._steps[self._done])
        self._done += 1

    def snapshot(self) -> Snapshot:
        """Sampler, guider, generator and all values of the loop, as plain data."""
        parts = modular.own_parts(self._pipeline)
        loop = vars(self._block_state)
        values = {k: v for k, v in self._state.values.items() if k not in loop}
        state = {
            "step": self._done,
            "values": plain(values),
            "groups": plain(self._state.kwargs_mapping),
            "loop": plain(loop),
            "parts": {name: plain(modular.part_state(part)) for name, part in parts.items()},
        }
        return {**state, "placed": placed(state)}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Continue where `snapshot` was taken, whatever this process has done before."""
        state = to_places(snapshot, snapshot["placed"], self._pipeline._execution_device)
        self._state = modular.new_state(self._stage, {})
        self._state.values.update({**state["loop"], **state["values"]})
        self._state.kwargs_mapping.update(state["groups"])
        for name, part in modular.own_parts(self._pipeline).items():
            vars(part).update(state["parts"][name])
        self._block_state, self._steps = self._loop.record(self._state)
        vars(self._block_state).update(state["loop"])
        self._done = state["step"]

    @torch.no_grad()
    def finish(self) -> dict[str, Any]:
        """Values that the decoder's blocks declare, the request's own inputs left out."""
        state = self._loop.conclude(self._state, self._block_state)
        names = self._stage.gives - self._inputs.keys()
        return {name: state.values[name] for name in sorted(names & state.values.keys())}

    def close(self) -> None:
        """Drop all state."""
        self._state = self._block_state = None
        self._steps = []
