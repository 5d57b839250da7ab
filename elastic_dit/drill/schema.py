"""The JSON that ``elastic-dit drill`` writes: models and their page.

The page, ``docs/drill-schema.md``, is made from the models::

    python -m elastic_dit.drill.schema > docs/drill-schema.md
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["DrillReport", "FaultReport", "Totals", "schema_page"]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Totals(_Report):
    """Requests, counted by how they ended."""

    accepted: int = 0
    """Requests that were accepted."""
    refused: int = 0
    """Submissions that were refused with a time to try again."""
    completed: int = 0
    """Accepted requests with a result."""
    failed: int = 0
    """Accepted requests that ended with an error."""
    cancelled: int = 0
    """Accepted requests that were cancelled by the drill."""
    lost: int = 0
    """Accepted requests that did not end in time."""
    duplicated: int = 0
    """Requests that came to a result more than once."""
    differing: int = 0
    """Results with pixels that are not those of the same request without faults."""


class FaultReport(Totals):
    """One fault, and the requests that were under way."""

    fault: str
    """Name of the fault."""
    injected: int
    """How often it happened."""
    steps_repeated: int
    """Denoising steps that were done once more."""
    seconds_to_notice: float | None
    """From the fault until the control plane gave the engine up and its request was in line again;
    null where no engine was hurt."""
    seconds_to_recover: float | None
    """From the fault until its victim went on, once a GPU was free for it; null where nothing
    had to."""
    seconds: float
    """Wall time until all its requests had ended."""
    reasons: tuple[str, ...]
    """Errors of those that failed."""


class DrillReport(_Report):
    """All of what `elastic-dit drill --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    model: str
    """Name of the served model."""
    virtual_gpus: int
    """GPUs of the cluster."""
    steps: int
    """Denoising steps of each request."""
    checkpoint_every: int
    """Steps between two snapshots: what a request repeats at most when its engine dies, and what it
    does while a copy is on its way."""
    faults: tuple[FaultReport, ...]
    """In the order in which they happened."""
    totals: Totals
    """Of all faults."""
    seconds: float
    """Wall time of the whole, the start of the cluster included."""
    ok: bool
    """Whether nothing was lost, nothing duplicated, and no pixel differs."""


_INTRODUCTION = """\
# Schema of the drill

`elastic-dit drill --json FILE` writes a `DrillReport`. All times are in seconds. Fields may be
added; what is here keeps its meaning within one `schema_version`. The exit code is 0 where `ok` is
true and 1 otherwise.

This page is made by `python -m elastic_dit.drill.schema`.
"""


def schema_page() -> str:
    """The page that documents the report, as Markdown.

    Returns
    -------
    str
        One table per model, the outermost first.
    """
    from elastic_dit.report.schema import model_table

    models = (DrillReport, FaultReport, Totals)
    return "\n".join([_INTRODUCTION, *(model_table(model) for model in models)])


if __name__ == "__main__":
    print(schema_page(), end="")
