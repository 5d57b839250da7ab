"""What DisagFusion reports, and the deployment that follows from it; data, no decisions.

The figures are in ``data/disagfusion.yaml``. Stage times are not printed in the paper: those on A10
were solved from its throughputs, which they reproduce within 2 %; those on H100 are solved here,
and only nearly, as its figures contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from elastic_dit.cost import LinearMemory, Shaped, StageMemory
from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.simulate.workload import RequestClass

__all__ = [
    "A10_BYTES",
    "H100_BYTES",
    "MODEL",
    "STEPS",
    "PaperCost",
    "a10_cost",
    "figures",
    "h100_cost",
    "load_seconds",
    "memory",
    "monolithic_cost",
    "requests",
]

MODEL = "wan-14b"
STEPS = (4, 1)
"""Denoising steps of the two phases."""
_GB = 10**9
A10_BYTES = 24 * _GB
H100_BYTES = 80 * _GB
_QUANTISED = 0.5
"""Part of its BF16 weights that the DiT takes on an A10: 28 GB do not fit in 24, and the paper
does not say what it does about that; LightX2V's 8-bit weights do fit."""
_ACTIVATIONS = {Stage.ENCODER: 2 * _GB, Stage.DIT: 4 * _GB, Stage.DECODER: 6 * _GB}
"""At 832 x 480 with 81 frames; the paper has none. Whatever lets a decoder sit beside the DiT
(up to 9.9 GB) and no encoder with it (above 0.4 GB) gives the same placements."""
_SHAPE = {"width": 832, "height": 480, "num_frames": 81, "fps": 16, "guidance_scale": 1.0}
_PER_MINUTE = 60.0


@cache
def figures() -> Mapping[str, Any]:
    """The file, as it is."""
    with data_path("disagfusion.yaml").open(encoding="utf-8") as file:
        content: Mapping[str, Any] = yaml.safe_load(file)
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperCost:
    """Stage times of one kind of GPU, at DoP 1: both a `CostModel` and its `StageTimes`.

    Attributes
    ----------
    encoder_s, decoder_s : float
    dit_s : mapping of int to float
        Whole stage by number of steps.
    reload_s : mapping of Stage to float
        Added to each stage: loading and unloading its weights for every request.
    """

    encoder_s: float
    dit_s: Mapping[int, float]
    decoder_s: float
    reload_s: Mapping[Stage, float] = field(default_factory=dict)

    def stage_seconds(
        self,
        request: Shaped,
        stage: Stage,
        dop: int = 1,
        kind: str | None = None,  # noqa: ARG002
    ) -> float:
        """See `CostModel`."""
        if stage is Stage.DIT:
            seconds = request.num_inference_steps * self.step_seconds(request, dop)
        else:
            seconds = self.encoder_s if stage is Stage.ENCODER else self.decoder_s
        return seconds + self.reload_s.get(stage, 0.0)

    def step_seconds(
        self,
        request: Shaped,
        dop: int,
        kind: str | None = None,  # noqa: ARG002
    ) -> float:
        """See `CostModel`."""
        if dop != 1:
            raise ConfigError("dop", dop, "1: the paper runs each stage on one GPU")
        steps = request.num_inference_steps
        if steps not in self.dit_s:
            raise ConfigError("num_inference_steps", steps, f"one of {sorted(self.dit_s)}")
        return self.dit_s[steps] / steps

    def allowed_dops(self, request: Shaped) -> tuple[int, ...]:  # noqa: ARG002
        """See `CostModel`."""
        return (1,)

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        """See `elastic_dit.control.view.StageTimes`."""
        if dop != 1:
            return None
        if stage is Stage.DIT:
            return self.step_seconds(request, dop, kind)
        return self.stage_seconds(request, stage, dop, kind)


def a10_cost() -> PaperCost:
    """On A10: solved from the throughputs of Figure 14."""
    times = figures()["derived_stage_times_a10_s"]
    return PaperCost(
        encoder_s=times["encoder"],
        dit_s={4: times["dit_4_steps"], 1: times["dit_1_step"]},
        decoder_s=times["decoder"],
    )


def monolithic_cost() -> PaperCost:
    """On A10 with every stage loaded and unloaded for every request (Figure 4)."""
    resident = a10_cost()
    return PaperCost(
        encoder_s=resident.encoder_s,
        dit_s=resident.dit_s,
        decoder_s=resident.decoder_s,
        reload_s=load_seconds(),
    )


def h100_cost() -> PaperCost:
    """On H100: solved from Figure 15, by ``throughput = min g / T``.

    1:6:1 serves as much in both phases, so its decoder bounds it; 1:5:2 is bound by its encoder in
    phase 2; DisagFusion's phase 2 is what 2:4:2 serves if the DiT bounds it. In phase 1 the DiT
    takes at most ``6 / 6.64`` minutes by 1:6:1 and ``5 / 4.75`` by 1:5:2, which is 17 % more:
    both cannot be, and the geometric mean is taken.
    """
    first = figures()["throughput_qpm"]["parameter_trace_h100"]["phase_1"]
    second = figures()["throughput_qpm"]["parameter_trace_h100"]["phase_2"]
    return PaperCost(
        encoder_s=_PER_MINUTE / second["1:5:2"],
        dit_s={
            4: _PER_MINUTE * math.sqrt(6 / first["1:6:1"] * 5 / first["1:5:2"]),
            1: _PER_MINUTE * 4 / second["disagfusion"],
        },
        decoder_s=_PER_MINUTE / second["1:6:1"],
    )


def _weights_gb() -> dict[Stage, float]:
    of = figures()["memory"]
    return {
        Stage.ENCODER: of["encoder_weights_gb"],
        Stage.DIT: of["dit_weights_gb"],
        Stage.DECODER: of["decoder_weights_gb"],
    }


def load_seconds() -> dict[Stage, float]:
    """Of each stage's weights: the 30.3 s of Figure 4, in proportion to their size.

    They are for loading and unloading, so a load alone takes no longer.
    """
    whole = figures()["single_request_4_steps"]["monolithic_load_unload_s"]
    weights = _weights_gb()
    return {stage: whole * size / sum(weights.values()) for stage, size in weights.items()}


def memory(kind: str) -> LinearMemory:
    """What stages take of a GPU's memory; the DiT's weights are halved on A10."""
    shrink = {Stage.DIT: _QUANTISED} if kind == "A10" else {}
    return LinearMemory(
        {
            StageKey(MODEL, stage): StageMemory(
                weights_bytes=round(size * shrink.get(stage, 1.0) * _GB),
                base_bytes=_ACTIVATIONS[stage],
            )
            for stage, size in _weights_gb().items()
        }
    )


def requests(steps: int) -> RequestClass:
    """Requests of the traces, with so many steps."""
    options = {"model": MODEL, **_SHAPE, "num_inference_steps": steps}
    return RequestClass(label=f"{steps}-step", share=1.0, options=options)
