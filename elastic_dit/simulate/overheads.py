"""What a cluster costs beside computing: transfers, hand-overs, loads, detection."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = ["Overheads"]

_DEFAULT_BYTES = {Stage.ENCODER: 8 << 20, Stage.DIT: 16 << 20, Stage.DECODER: 64 << 20}
"""Order of magnitude of a 480p video model: conditioning, latents, frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Times of a virtual cluster that no cost model knows; all zero by default.

    Attributes
    ----------
    latency_s : float
        Of one message or transfer between engines.
    bandwidth_bytes_per_s : float
        Of one transfer between engines.
    jitter_probability, jitter_s : float
        Part of all messages that take `jitter_s` longer.
    messages : int
        Messages that one transfer is made of, sent together; it is late if any of them is.
    synchronous : bool
        An engine stays taken until its output has reached the next one, which then has no inputs
        to pull: what DisagFusion compares its queues with. It is not how engines here work.
    output_bytes : mapping of Stage to int
        Size of what a stage makes; a DiT snapshot, and the state sent to GPUs that join a
        group, are as large as its output.
    group_create_s : float
        First use of a group of GPUs.
    handover_s : float
        Every change of the GPUs that work on a request, once before they go on.
    load_s, drop_s : float
        One stage's weights.
    stage_load_s : mapping of Stage to float
        Of stages whose load takes another time than `load_s`.
    detect_s : float
        Between the death of a GPU and `EngineLost`.
    pull_timeout_s : float
        After which a pull from a dead GPU is given up.
    provision_s : float
        Between `AskNodes` and the machine being there.
    """

    latency_s: float = 0.0
    bandwidth_bytes_per_s: float = math.inf
    jitter_probability: float = 0.0
    jitter_s: float = 0.0
    messages: int = 1
    synchronous: bool = False
    output_bytes: Mapping[Stage, int] = field(default_factory=lambda: dict(_DEFAULT_BYTES))
    group_create_s: float = 0.0
    handover_s: float = 0.0
    load_s: float = 0.0
    drop_s: float = 0.0
    stage_load_s: Mapping[Stage, float] = field(default_factory=dict)
    detect_s: float = 0.0
    pull_timeout_s: float = 1.0
    provision_s: float = 0.0

    def __post_init__(self) -> None:
        durations = {name: getattr(self, name) for name in _DURATIONS}
        durations |= {f"stage_load_s.{stage}": value for stage, value in self.stage_load_s.items()}
        for name, value in durations.items():
            if not 0 <= value < math.inf:
                raise ConfigError(f"overheads.{name}", value, "finite seconds of 0 or more")
        if self.messages < 1:
            raise ConfigError("overheads.messages", self.messages, "1 or more")
        if not self.bandwidth_bytes_per_s > 0:
            raise ConfigError(
                "overheads.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "above 0"
            )
        if not 0 <= self.jitter_probability <= 1:
            raise ConfigError(
                "overheads.jitter_probability", self.jitter_probability, "from 0 to 1"
            )

    def transfer_s(self, nbytes: int, dice: random.Random) -> float:
        """Seconds of one transfer."""
        seconds = self.latency_s + nbytes / self.bandwidth_bytes_per_s
        if self.jitter_probability:
            on_time = (1.0 - self.jitter_probability) ** self.messages
            if dice.random() >= on_time:
                seconds += self.jitter_s
        return seconds

    def stage_load(self, stage: Stage) -> float:
        """Seconds to load one stage's weights."""
        return self.stage_load_s.get(stage, self.load_s)


_DURATIONS = (
    "latency_s",
    "jitter_s",
    "group_create_s",
    "handover_s",
    "load_s",
    "drop_s",
    "detect_s",
    "pull_timeout_s",
    "provision_s",
)
