"""The JSON that ``elastic-dit demo`` and ``elastic-dit generate`` write: models and their page.

The page, ``docs/report-schema.md``, is made from the models::

    python -m elastic_dit.report.schema > docs/report-schema.md
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = [
    "ClusterReport",
    "DemoReport",
    "JudgeReport",
    "PlainReport",
    "RequestReport",
    "StageReport",
    "Totals",
    "model_table",
    "schema_page",
]

SCHEMA_VERSION: Final = 1
"""Rises when a field changes its meaning or goes away; new fields do not raise it."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StageReport(_Report):
    """One stage of one request: who ran it, when and for how long."""

    stage: Stage
    """`encoder`, `dit` or `decoder`."""
    gpus: tuple[GpuId, ...]
    """Engines that ran it, master first."""
    started_s: float
    """Start, seconds after the first stage of the whole run started."""
    seconds: float
    """Time on the GPUs."""
    attempt: int
    """1, or more where an engine died under the request."""


class JudgeReport(_Report):
    """What image analysis read off a clip, without a network and without a human."""

    ok: bool
    """Whether all that was read is what the prompt asks for."""
    colour: str | None
    """Colour of the shape; null where no shape is visible."""
    shape: str | None
    """Which shape."""
    motion: str | None
    """What it does; null for an image, whose motion is not judged."""
    background: str | None
    """Colour behind it."""
    iou: float
    """Overlap of the visible shape with an ideal one, 0 to 1."""
    stray: float
    """Share of the foreground that is no part of the shape, 0 to 1."""
    differences: tuple[str, ...]
    """Which of colour, shape, motion and background differ from the prompt."""


class PlainReport(_Report):
    """The same request and seed through the plain diffusers pipeline, in a process of its own."""

    ok: bool
    """Whether the judge accepts that clip."""
    identical: bool
    """Whether every pixel of every frame equals ours."""
    seconds: float
    """Wall time of the pipeline call."""


class RequestReport(_Report):
    """One request, what came of it, and where its time went."""

    request_id: str
    """Key of the request in logs and records."""
    model: str
    """Model that served it."""
    prompt: str
    """What was asked for."""
    size: str
    """`WIDTHxHEIGHT`, pixels."""
    frames: int
    """Frames; 1 makes an image."""
    fps: int
    """Frames per second."""
    steps: int
    """Denoising steps."""
    guidance_scale: float
    """Classifier-free guidance."""
    seed: int
    """Seed of the initial noise."""
    status: Literal["completed", "failed", "cancelled"]
    """How it ended."""
    error: str | None = None
    """Why, where it did not complete."""
    file: str | None = None
    """Clip or image, relative to the report."""
    submitted_seconds: float = 0.0
    """When it was submitted, counted from the first submission."""
    latency_seconds: float | None = None
    """From submission until the frames were at the client."""
    stage_seconds: dict[Stage, float] = {}
    """Time on the GPUs per stage; the last attempt's where there were several."""
    queue_seconds: float | None = None
    """The rest of the latency: waits for a GPU, hand-offs and delivery."""
    engines: dict[Stage, tuple[GpuId, ...]] = {}
    """GPUs that ran each stage."""
    stages: tuple[StageReport, ...] = ()
    """Every stage that ran, with its time."""
    judge: JudgeReport | None = None
    """What the clip shows; null where the prompt names no scene that can be judged."""
    plain: PlainReport | None = None
    """Comparison with the plain pipeline; null where none was made."""


class ClusterReport(_Report):
    """What the run had to work with."""

    virtual_gpus: int
    """Engines, each a process of its own."""
    cpus: int
    """CPU cores this machine lets us use."""
    cpu_threads: int
    """Torch threads of each engine."""
    placement: str
    """Placement policy."""
    dispatch: str
    """Dispatch policy."""


class Totals(_Report):
    """Sums over all requests."""

    requests: int
    """How many were submitted."""
    completed: int
    """How many have a result."""
    judged: int
    """How many results could be judged."""
    right: int
    """How many of those the judge accepts."""
    plain_right: int | None = None
    """How many of the plain pipeline's clips the judge accepts; null where not compared."""
    identical: int | None = None
    """How many clips equal the plain pipeline's in every pixel; null where not compared."""
    wall_seconds: float
    """From the first submission to the last result."""
    plain_wall_seconds: float | None = None
    """The plain pipeline's calls, one after the other; null where not compared."""
    gpu_busy_share: float
    """Time on GPUs over GPUs x wall time, 0 to 1."""


class DemoReport(_Report):
    """All of `report.json`, and of what `elastic-dit demo --json FILE` writes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this schema."""
    software: str
    """Name and version of what wrote it."""
    cluster: ClusterReport
    """What the run had to work with."""
    requests: tuple[RequestReport, ...]
    """In order of submission."""
    totals: Totals
    """Sums over all requests."""


_INTRODUCTION = """\
# Schema of the reports

`elastic-dit demo` writes a `DemoReport` to `report.json` and to `--json FILE`;
`elastic-dit generate --json FILE` writes one `RequestReport`. All times are in seconds.
Fields may be added; what is here keeps its meaning within one `schema_version`.

Other figures have their schemas elsewhere: `elastic-dit status --json FILE` in the docstring of
`elastic_dit.cluster.plane.status.status_of`, simulated figures in
[their own page](simulation-schema.md), those of benchmarks in `benchmarks/README.md`.

This page is made by `python -m elastic_dit.report.schema`.
"""


_MODELS: tuple[type[_Report], ...] = (
    DemoReport,
    ClusterReport,
    RequestReport,
    StageReport,
    JudgeReport,
    PlainReport,
    Totals,
)


def schema_page() -> str:
    """The page that documents the reports, as Markdown.

    Returns
    -------
    str
        One table per model, the outermost first.
    """
    return "\n".join([_INTRODUCTION, *(model_table(model) for model in _MODELS)])


def model_table(model: type[BaseModel]) -> str:
    """A model as a Markdown table: its docstring, and a row for each field.

    Parameters
    ----------
    model : type of pydantic.BaseModel
        With docstrings under its fields.
    """
    types = model.model_json_schema()["properties"]
    rows = [
        f"| `{field}` | {_type_name(types[field])} | {' '.join((info.description or '').split())} |"
        for field, info in model.model_fields.items()
    ]
    head = f"## {model.__name__}\n\n{model.__doc__}\n\n| field | type | meaning |\n|---|---|---|"
    return "\n".join([head, *rows, ""])


def _type_name(facts: dict[str, Any]) -> str:
    """A JSON-schema type in a word or two."""
    if "$ref" in facts:
        name = str(facts["$ref"]).rsplit("/", 1)[-1]
        return "stage" if name == "Stage" else f"[{name}](#{name.lower()})"
    if "anyOf" in facts:
        return " or ".join(_type_name(option) for option in facts["anyOf"])
    if "const" in facts:
        return f"`{facts['const']}`"
    if "enum" in facts:
        return ", ".join(f"`{value}`" for value in facts["enum"])
    if facts["type"] == "array":
        return f"list of {_type_name(facts['items'])}"
    if facts["type"] == "object":
        key = _type_name(facts["propertyNames"]) if "propertyNames" in facts else "name"
        return f"map of {key} to {_type_name(facts['additionalProperties'])}"
    return str(facts["type"])


if __name__ == "__main__":
    print(schema_page(), end="")
