"""The JSON that ``elastic-dit verify`` writes: models and their page.

The page, ``docs/verify-schema.md``, is made from the models::

    python -m elastic_dit.verify.schema > docs/verify-schema.md
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["PlanReport", "VerifyReport", "schema_page"]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PlanReport(_Report):
    """One plan, against the result on one GPU."""

    plan: str
    """Degrees of parallelism in their order; GPUs in braces where they are not the first ones."""
    members: tuple[tuple[int, ...], ...]
    """GPUs of each stage, the master first."""
    boundaries: tuple[int, ...]
    """Denoising steps done when each stage begins."""
    status: Literal["passed", "failed", "refused"]
    """Refused is what cannot run here; it never ran."""
    ok: bool | None
    """Whether it passed; null where it was refused."""
    max_abs_error: float | None
    """Largest difference of an element from the result on one GPU; null without a result."""
    relative_error: float | None
    """The same over the largest absolute value of the result on one GPU."""
    seconds: float | None
    """Wall time; null where it was refused."""
    reason: str | None
    """Why it was refused, or failed for another reason than its error."""


class VerifyReport(_Report):
    """All of what `elastic-dit verify --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    model: str
    """The model folder, as given."""
    dtype: str
    """Of the weights."""
    device: str
    """Kind of GPU, `virtual` for processes on CPUs."""
    backend: Literal["gloo", "nccl"]
    """What carried the tensors between GPUs."""
    size: str
    """`WIDTHxHEIGHT`, pixels."""
    frames: int
    """Frames; 1 is an image."""
    steps: int
    """Denoising steps."""
    allowed_dops: tuple[int, ...]
    """Degrees of parallelism that this request allows, up to the largest one asked for."""
    largest: float
    """Largest absolute value of the result on one GPU."""
    max_abs_error_allowed: float
    """A plan passes up to that."""
    alone_seconds: float
    """Time that denoising took on one GPU."""
    plans: tuple[PlanReport, ...]
    """In the order in which they ran."""
    ok: bool
    """Whether at least one plan ran, and all that ran passed."""


_INTRODUCTION = """\
# Schema of the verification

`elastic-dit verify --json FILE` writes a `VerifyReport`. All times are in seconds. Fields may be
added; what is here keeps its meaning within one `schema_version`. The exit code is 0 where `ok` is
true and 1 otherwise.

This page is made by `python -m elastic_dit.verify.schema`.
"""


def schema_page() -> str:
    """The page that documents the report, as Markdown.

    Returns
    -------
    str
        One table per model, the outermost first.
    """
    from elastic_dit.report.schema import model_table

    return "\n".join([_INTRODUCTION, *(model_table(m) for m in (VerifyReport, PlanReport))])


if __name__ == "__main__":
    print(schema_page(), end="")
