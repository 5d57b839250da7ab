"""Cost models from files: a table of stage latencies, and folders of polynomials."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from elastic_dit.cost.polynomial import QUANTITIES, LatentGeometry, Polynomial, PolynomialCost
from elastic_dit.cost.table import LatencyCurve, TableCost
from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage

__all__ = [
    "FIGURE_17_FRAMES",
    "FIGURE_17_STEPS",
    "RESOLUTIONS",
    "read_polynomial_cost",
    "read_stage_latencies",
]

RESOLUTIONS: Mapping[str, tuple[int, int]] = {
    "144p": (256, 144),
    "240p": (426, 240),
    "360p": (640, 360),
    "480p": (854, 480),
}
"""Width and height in pixels by OpenSora's names of 16:9 sizes."""

FIGURE_17_FRAMES = 51
FIGURE_17_STEPS = 30

_T = TypeVar("_T")

_FIGURE_17 = "ddit_fig17_stage_latency.csv"
_FIGURE_17_COLUMNS = ("stage", "dop", "resolution", "batch", "latency_s")
_STAGES = {"encoder": Stage.ENCODER, "dit": Stage.DIT, "vae": Stage.DECODER}
_TASKS = (
    "dit_prepare",
    "dit_step_chunk",
    "finalize",
    "text_encode",
    "timestep_prepare",
    "vae_decode",
)


def read_stage_latencies(
    path: str | Path | None = None,
    *,
    kind: str = "H800",
    batch: int = 1,
    num_frames: int = FIGURE_17_FRAMES,
    steps: int = FIGURE_17_STEPS,
) -> TableCost:
    """Read a table of stage latencies in the form of DDiT's Figure 17.

    The figure has no text encoder ("negligible", DDiT §4.3), so it takes no time unless the file
    has rows of stage ``encoder``.

    Parameters
    ----------
    path : str or Path, optional
        CSV with the columns ``stage, dop, resolution, batch, latency_s``; default Figure 17.
    kind : str
        GPU kind it was measured on.
    batch : int
        Which batch size to read.
    num_frames, steps : int
        Frames and denoising steps of every measurement.

    Raises
    ------
    ConfigError
        Where the file cannot be read or a field is wrong.

    Examples
    --------
    >>> cost = read_stage_latencies()
    >>> cost
    <TableCost H800>
    """
    points: dict[Stage, dict[int, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for where, row in _rows(Path(path) if path else data_path(_FIGURE_17)):
        stage = _choice(f"{where}.stage", row["stage"], _STAGES)
        width, height = _choice(f"{where}.resolution", row["resolution"], RESOLUTIONS)
        dop, of_batch = (int(_number(f"{where}.{name}", row[name])) for name in ("dop", "batch"))
        if of_batch != batch or not row["latency_s"]:
            continue
        seconds = _number(f"{where}.latency_s", row["latency_s"])
        per = steps if stage is Stage.DIT else 1
        points[stage][dop].append((width * height * num_frames, seconds / per))
    curves = {
        stage: {dop: LatencyCurve(of_dop) for dop, of_dop in by_dop.items()}
        for stage, by_dop in points.items()
    }
    return TableCost({kind: curves})


def read_polynomial_cost(
    folder: str | Path | None = None, geometry: LatentGeometry | None = None
) -> PolynomialCost:
    """Read the JSON cost models of a folder, one file for each degree of parallelism.

    Parameters
    ----------
    folder : str or Path, optional
        Holds ``*.json`` in the form of GF-DiT's profiler; default the mixed-priority cost model.
    geometry : LatentGeometry, optional
        How pixels become tokens; default that of Wan.

    Raises
    ------
    ConfigError
        Where a file cannot be read or a field is missing or wrong.

    Examples
    --------
    >>> read_polynomial_cost()
    <PolynomialCost DoP 1, 2, 4, 8>
    """
    source = Path(folder) if folder else data_path("mixed_priority/cost_model")
    paths = sorted(source.glob("*.json"))
    if not paths:
        raise ConfigError("cost_model", str(source), "a folder with JSON cost models")
    return PolynomialCost(dict(map(_polynomials, paths)), geometry)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("path", str(path), f"a readable file ({error.strerror})") from None
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _FIGURE_17_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(path.name, reader.fieldnames, f"a header with {', '.join(missing)}")
    for number, row in enumerate(reader, start=2):
        yield f"{path.name}:{number}", {name: value or "" for name, value in row.items() if name}


def _polynomials(path: Path) -> tuple[int, dict[str, Polynomial]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("cost_model", str(path), f"a readable JSON file ({error})") from None
    parallelism = _mapping(path.name, content, "parallelism")
    degrees = [_number(f"{path.name}.parallelism.{n}", parallelism.get(n)) for n in ("tp", "sp")]
    stages = _mapping(path.name, content, "stages")
    tasks = {task: _polynomial(f"{path.name}.stages", stages, task) for task in _TASKS}
    return int(degrees[0] * degrees[1]), tasks


def _polynomial(where: str, stages: Mapping[str, Any], task: str) -> Polynomial:
    stage = _mapping(where, stages, task)
    coefficients = _mapping(f"{where}.{task}", stage, "coeffs")
    x_name = stage.get("x_name")
    if x_name not in QUANTITIES:
        raise ConfigError(f"{where}.{task}.x_name", x_name, f"one of {', '.join(QUANTITIES)}")
    a, b, c = (
        _number(f"{where}.{task}.coeffs.{name}", coefficients.get(name)) for name in ("a", "b", "c")
    )
    return Polynomial(x_name=x_name, a=a, b=b, c=c)


def _mapping(where: str, parent: Any, name: str) -> Mapping[str, Any]:
    value = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}.{name}", value, "an object")
    return value


def _choice(field: str, value: str, known: Mapping[str, _T]) -> _T:
    if value not in known:
        raise ConfigError(field, value, f"one of {', '.join(known)}")
    return known[value]


def _number(field: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(field, value, "a number") from None
