"""The JSON that ``elastic-dit profile`` writes: models and their page.

The page, ``docs/profile-schema.md``, is made from the models::

    python -m elastic_dit.cli.profile_schema > docs/profile-schema.md
"""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict

from elastic_dit.request import Stage
from elastic_dit.rib import Latency

__all__ = ["LatencyReport", "OptimumReport", "ProfileReport", "schema_page"]

SCHEMA_VERSION: Final = 2
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LatencyReport(_Report):
    """One stage of one shape at one degree of parallelism."""

    model: str
    """Name of the model."""
    kind: str
    """GPU kind; `virtual` for processes on CPUs."""
    stage: Stage
    """Which stage."""
    width: int
    """Pixels."""
    height: int
    """Pixels."""
    frames: int
    """Frames; 1 is an image."""
    guided: bool
    """Whether classifier-free guidance was on; false for the decoder, which it does not touch."""
    dop: int
    """Degree of parallelism: GPUs of one step."""
    seconds: float
    """Mean, of one step for the transformer (`dit`), else of the whole stage."""
    spread_seconds: float
    """Standard deviation between runs."""
    repeats: int
    """Runs that counted."""
    setup_seconds: float
    """What the transformer takes once beside its steps; 0 for other stages."""

    @classmethod
    def of(cls, latency: Latency) -> Self:
        """The report of a latency."""
        key = latency.key
        return cls(
            model=key.model, kind=key.kind, stage=key.stage, width=key.width, height=key.height,
            frames=key.num_frames, guided=key.guided, dop=key.dop, seconds=latency.seconds,
            spread_seconds=latency.spread_s, repeats=latency.repeats,
            setup_seconds=latency.setup_s,
        )  # fmt: skip


class OptimumReport(_Report):
    """The optimal degree of parallelism of one shape."""

    model: str
    """Name of the model."""
    kind: str
    """GPU kind."""
    width: int
    """Pixels."""
    height: int
    """Pixels."""
    frames: int
    """Frames."""
    guided: bool
    """Whether classifier-free guidance was on."""
    dop: int
    """The degree whose doubling from its half cuts the step time most; 1 where none does."""
    cuts: dict[int, float]
    """Share of the step time that doubling to each degree cuts; negative where it takes longer."""


class ProfileReport(_Report):
    """All of what `elastic-dit profile --json FILE` writes."""

    schema_version: Literal[2] = SCHEMA_VERSION
    """Version of this schema."""
    software: dict[str, str]
    """Versions of what ran the stages, by GPU kind; under them the figures are kept."""
    rib: str
    """Where they were written, without a password."""
    load: Literal["alone", "full"]
    """One request at a time, or all GPUs at work."""
    latencies: tuple[LatencyReport, ...]
    """What was measured."""
    optima: tuple[OptimumReport, ...]
    """What follows for each shape."""


_INTRODUCTION = """\
# Schema of the profile

`elastic-dit profile --json FILE` writes a `ProfileReport`; what it is for is told in
[Profiling](profiling.md). All times are in seconds. Fields may be added; what is here keeps its
meaning within one `schema_version`.

This page is made by `python -m elastic_dit.cli.profile_schema`.
"""


def schema_page() -> str:
    """The page that documents the report, as Markdown.

    Returns
    -------
    str
        One table per model, the outermost first.
    """
    from elastic_dit.report.schema import model_table

    models: tuple[type[_Report], ...] = (ProfileReport, LatencyReport, OptimumReport)
    return "\n".join([_INTRODUCTION, *map(model_table, models)])


if __name__ == "__main__":
    print(schema_page(), end="")
