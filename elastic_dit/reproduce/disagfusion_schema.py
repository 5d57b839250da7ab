"""The JSON that ``elastic-dit reproduce disagfusion`` writes."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "ChangeFigures",
    "Comparison",
    "DisagFusionReport",
    "DisagFusionSetting",
    "JitterFigures",
    "ScalingFigures",
    "TraceFigures",
]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DisagFusionSetting(_Report):
    """What was run, and what the paper leaves open."""

    stage_seconds: dict[str, dict[str, float]]
    """By GPU kind: `encoder`, `dit_4_steps`, `dit_1_step`, `decoder`; solved from the paper's
    throughputs."""
    load_seconds: dict[str, float]
    """Weights of each stage."""
    phase_s: float
    """Length of each phase where capacities are measured."""
    settle_s: float
    """Of its beginning, left out."""
    users_per_gpu: int
    """Requests kept in the system there."""
    quiet_interval_s: float
    """Between two requests before their rate rises (`rate_trace_a10`)."""
    provision_s: float
    """Between asking for a machine and its being there."""
    jitter_messages: int
    """Messages of one hand-over, for which the synchronous design loses what the paper says under
    moderate jitter."""
    jitter_seeds: int
    """Runs behind each figure of the jitter."""
    tolerance: float
    """Distance from the paper's figure that counts as reproduced."""


class ChangeFigures(_Report):
    """One placement plan after the first."""

    at_s: float
    """When it was made."""
    done_s: float
    """When the last load or drop that it asked for was over."""
    reason: str
    """As in the decision log."""


class TraceFigures(_Report):
    """One deployment on one trace."""

    phase_1_qpm: float
    """Requests completed per minute."""
    phase_2_qpm: float
    """The same after the shift."""
    phase_1_mean_s: float | None
    """Mean latency of those completed; null where there are none."""
    phase_2_mean_s: float | None
    """The same after the shift."""
    switched_after_s: float | None
    """From the shift to the end of the first change after it that loads or drops; null without."""
    waiting_at_end: int
    """Requests in line when the trace ends."""
    changes: tuple[ChangeFigures, ...]
    """What moved, when and why."""
    minute_qpm: tuple[float, ...]
    """Completions in each minute."""


class ScalingFigures(_Report):
    """Identical 4-step requests on a number of GPUs (Figure 12b)."""

    split: str
    """Exclusive stages, GPUs for encoder, DiT and decoder."""
    exclusive_qpm: float
    """Capacity with one stage per GPU."""
    packed_qpm: float
    """Capacity with stages that share GPUs."""
    monolithic_qpm: float
    """Capacity with every GPU loading and unloading all stages for each request."""
    thirty_requests_qpm: float
    """30 requests at once on exclusive stages, over the time until the last has ended."""


class JitterFigures(_Report):
    """One pattern of delays, the encoder being the bottleneck (1-step requests on 1:5:2)."""

    probability: float
    """Of a message being late."""
    delay_s: float
    """By how much."""
    synchronous_lost_percent: float
    """Throughput lost where the sender is blocked until all has arrived, in per cent of the stable
    network's."""
    ours_lost_percent: float
    """The same where receivers pull, as engines here do."""
    single_message_synchronous_lost_percent: float
    """The same as the first with one message for each hand-over."""
    single_message_ours_lost_percent: float
    """The same as the second with one message for each hand-over."""


class Comparison(_Report):
    """One figure of the paper, and ours."""

    what: str
    """Which."""
    theirs: float
    """The paper's."""
    ours: float
    """Ours."""
    unit: Literal["qpm", "%", "x"]
    """Requests per minute, per cent of throughput, or times."""
    reproduced: bool
    """Whether ours is within `tolerance`: relative, or in points where the unit is per cent."""
    why: str
    """What keeps it from being reproduced; empty where it is."""


class DisagFusionReport(_Report):
    """All of what `elastic-dit reproduce disagfusion --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    setting: DisagFusionSetting
    """What was run."""
    parameter_trace_a10: dict[str, TraceFigures]
    """4-step, then 1-step requests on 8 A10 (Figure 14a), capacities: `s161`, `s152`, `reactive`,
    `hybrid` (choosing among these two splits), `hybrid_any` (among all), `packed` (stages may
    share GPUs), `monolithic`."""
    rate_trace_a10: dict[str, TraceFigures]
    """4-step requests on 8 A10, then more than they can serve; up to 8 more may be asked for
    (Figure 14b): `reactive`, `hybrid`, `packed`."""
    parameter_trace_h100: dict[str, TraceFigures]
    """As the first, on 8 H100 (Figure 15): `s161`, `s152`, `hybrid`, `packed`."""
    as_written: dict[str, dict[str, TraceFigures]]
    """`parameter_trace_a10` and `rate_trace_a10` with arrivals exactly as the paper gives them."""
    scaling: dict[str, ScalingFigures]
    """By number of GPUs."""
    jitter: dict[str, JitterFigures]
    """`mild`, `moderate`, `severe` (Figure 13)."""
    comparisons: tuple[Comparison, ...]
    """Theirs beside ours."""
    wall_seconds: float
    """Time the simulations took."""
