"""Degree-of-parallelism plans: which GPUs run which steps of a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise

from elastic_dit.errors import ConfigError
from elastic_dit.state import GpuId

__all__ = ["Plan", "Seating", "standard_plans", "ticket_of"]

MAX_STAGES, MAX_GPU = 1000, 63
_NAMED = re.compile(r"@\d{1,3}(\+\d{1,3})*")
_GRAMMAR = (
    "stages with commas between, each a degree (2 is GPUs 0 and 1) or GPUs with an @ (@1+3), "
    "each different from the one before and sharing a GPU with it, such as 1,2,1 or @1,@1+3,@1"
)


@dataclass(frozen=True, slots=True)
class Seating:
    """One GPU's entries into the run of a plan.

    Attributes
    ----------
    gpu : int
    tickets : tuple of str
        The orders by which it joins, one after the other; an empty one begins the run.
    """

    gpu: GpuId
    tickets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups of GPUs that take turns at one request.

    Attributes
    ----------
    stages : tuple of tuple of int
        GPUs of each stage, ascending; the request's steps are spread evenly over the stages.

    Examples
    --------
    >>> plan = Plan.parse("1,2,@0+2")
    >>> plan.stages, str(plan)
    (((0,), (0, 1), (0, 2)), '1→2→{0,2}')
    >>> plan.boundaries(6)
    {2: (0, 1), 4: (0, 2)}
    >>> plan.seatings()[0]
    Seating(gpu=0, tickets=('',))
    """

    stages: tuple[tuple[GpuId, ...], ...]

    def __str__(self) -> str:
        return "→".join(_stage_text(stage) for stage in self.stages)

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read a plan as users write it.

        Parameters
        ----------
        text : str
            Stages with commas between; each is a degree of parallelism or, after an ``@``,
            GPUs with ``+`` between.

        Raises
        ------
        ConfigError
        """
        stages = tuple(_stage(part.strip(), text) for part in text.split(","))
        for before, after in pairwise(stages):
            if before == after or not set(before) & set(after):
                raise ConfigError("plan", text, _GRAMMAR)
        if len(stages) > MAX_STAGES:
            raise ConfigError("plan", text, f"at most {MAX_STAGES} stages")
        return cls(stages)

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """All GPUs that take part."""
        return tuple(sorted({gpu for stage in self.stages for gpu in stage}))

    @property
    def dops(self) -> frozenset[int]:
        """Degrees of parallelism that occur."""
        return frozenset(map(len, self.stages))

    @property
    def first(self) -> GpuId:
        """The GPU that begins."""
        return self.stages[0][0]

    def boundaries(self, steps: int) -> dict[int, tuple[GpuId, ...]]:
        """Groups ordered, by the number of steps done then.

        Parameters
        ----------
        steps : int
            Denoising steps of the request; at least as many as stages.
        """
        begins = {index * steps // len(self.stages): s for index, s in enumerate(self.stages)}
        if len(self.stages[0]) == 1:
            del begins[0]  # a run begins on one GPU anyway
        return begins

    def seatings(self, steps: int | None = None) -> tuple[Seating, ...]:
        """When each GPU joins, the one that begins first.

        Parameters
        ----------
        steps : int, optional
            Denoising steps of the request; as many as stages by default.
        """
        tickets: dict[GpuId, list[str]] = {self.first: [""]}
        present: tuple[GpuId, ...] = (self.first,)
        for step, members in self.boundaries(steps or len(self.stages)).items():
            for gpu in members:
                if gpu not in present:
                    tickets.setdefault(gpu, []).append(ticket_of(step))
            present = members
        return tuple(Seating(gpu, tuple(names)) for gpu, names in tickets.items())


def standard_plans(dops: Sequence[int], steps: int) -> tuple[Plan, ...]:
    """Plans that try what can go wrong.

    Up and down over the first degrees and over all, GPUs that are no neighbours, and another
    group at every step boundary.

    Parameters
    ----------
    dops : sequence of int
        Degrees of parallelism to try.
    steps : int
        Denoising steps of the request.

    Examples
    --------
    >>> [str(plan) for plan in standard_plans((1, 2, 4), 6)]
    ['1→2→1', '1→2→4→2→1', '{1}→{1,3}→{1}', '1→2→4→2→1→2']
    """
    rising = sorted(set(dops))
    plans = [_up_and_down(rising[:count]) for count in range(2, len(rising) + 1)]
    more = next((dop for dop in rising if dop > 1), None)
    if more is not None:
        apart = tuple(range(1, 2 * more, 2))
        plans.append((apart[:1], apart, apart[:1]))
    turn = _up_and_down(rising)[:-1] or (_block(rising[0]),)
    plans.append(tuple(islice(cycle(turn), steps)) if len(turn) > 1 else turn)
    return tuple(Plan(stages) for stages in _distinct(plans))


def ticket_of(step: int) -> str:
    """Name of the order that is given after `step` steps."""
    return f"after {step}"


def _up_and_down(rising: Sequence[int]) -> tuple[tuple[GpuId, ...], ...]:
    return tuple(_block(dop) for dop in (*rising, *reversed(rising[:-1])))


def _distinct(
    plans: Iterable[tuple[tuple[GpuId, ...], ...]],
) -> tuple[tuple[tuple[GpuId, ...], ...], ...]:
    return tuple(dict.fromkeys(plans))


def _block(dop: int) -> tuple[GpuId, ...]:
    return tuple(range(dop))


def _stage(part: str, text: str) -> tuple[GpuId, ...]:
    if part.isdecimal() and 1 <= int(part) <= MAX_GPU + 1:
        return _block(int(part))
    if not _NAMED.fullmatch(part):
        raise ConfigError("plan", text, _GRAMMAR)
    gpus = sorted(int(gpu) for gpu in part[1:].split("+"))
    if len(set(gpus)) < len(gpus) or gpus[-1] > MAX_GPU:
        raise ConfigError("plan", text, f"made of different GPUs up to {MAX_GPU}")
    return tuple(gpus)


def _stage_text(stage: tuple[GpuId, ...]) -> str:
    if stage == _block(len(stage)):
        return str(len(stage))
    return "{" + ",".join(map(str, stage)) + "}"
