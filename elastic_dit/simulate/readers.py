"""Workloads from files: CSV, lines of ``Request(...)``, and mixed-priority JSON."""

from __future__ import annotations

import ast
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elastic_dit.errors import ConfigError, InvalidRequest
from elastic_dit.request import GenerationRequest
from elastic_dit.simulate.workload import Arrival

__all__ = ["DEFAULT_OPTIONS", "read_csv", "read_mixed_priority", "read_request_lines"]

DEFAULT_OPTIONS: Mapping[str, Any] = {
    "model": "trace",
    "prompt": "(none in the trace)",
    "num_frames": 1,
    "fps": 16,
    "num_inference_steps": 50,
    "guidance_scale": 5.0,
    "seed": 0,
}
"""What a request takes where its file says nothing."""

_CSV_EXTRA = ("at_s", "label")
_LINE_FIELDS: Mapping[str, str] = {
    "request_id": "request_id",
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "width": "width",
    "height": "height",
    "num_frames": "num_frames",
    "fps": "fps",
    "num_inference_steps": "num_inference_steps",
    "guidance_scale": "guidance_scale",
    "seed": "seed",
    "priority": "priority",
}
_LINE_EXTRA = ("timestamp", "slo_ms")
_MIXED_FIELDS: Mapping[str, str] = {
    "request_id": "request_id",
    "width": "width",
    "height": "height",
    "num_frames": "num_frames",
    "num_steps": "num_inference_steps",
    "priority": "priority",
}
_MS_PER_S = 1000.0


def read_csv(path: str | Path, *, options: Mapping[str, Any] | None = None) -> tuple[Arrival, ...]:
    """Read a CSV: one request per line, fields of `GenerationRequest` as columns.

    Two more columns are known: ``at_s`` (required, seconds) and ``label``. An empty field means
    the default.

    Parameters
    ----------
    path : str or Path
    options : mapping, optional
        Fields for every request where the file has none, over `DEFAULT_OPTIONS`.

    Returns
    -------
    tuple of Arrival
        In the order of time.

    Raises
    ------
    ConfigError
        Naming line and column of what is missing or wrong.
    """
    source = Path(path)
    rows = csv.DictReader(_text(source).splitlines())
    columns = tuple(rows.fieldnames or ())
    if "at_s" not in columns:
        raise ConfigError(source.name, ", ".join(columns), "a header with at_s")
    known = (*_CSV_EXTRA, *GenerationRequest.model_fields)
    for column in columns:
        if column not in known:
            raise ConfigError(f"{source.name}.{column}", column, f"one of {', '.join(known)}")
    arrivals = []
    for number, row in enumerate(rows, start=2):
        where = f"{source.name}:{number}"
        fields = {name: value for name, value in row.items() if value not in (None, "")}
        at_s = _number(f"{where}.at_s", fields.pop("at_s", None))
        label = fields.pop("label", "")
        fields.setdefault("request_id", f"line-{number}")
        arrivals.append(_arrival(where, at_s, label, {**(options or {}), **fields}))
    return _in_order(source, arrivals)


def read_request_lines(
    path: str | Path,
    *,
    at_s: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[Arrival, ...]:
    """Read lines such as ``Request(request_id='r1', width=1536, height=1536)``.

    The form of vLLM-Omni's traces. A field ``timestamp`` (seconds) says when, ``slo_ms`` becomes
    the deadline; blank lines and lines that begin with ``#`` are skipped.

    Parameters
    ----------
    path : str or Path
    at_s : sequence of float, optional
        Arrival times for a trace without timestamps, one for each request.
    options : mapping, optional
        As in `read_csv`.

    Raises
    ------
    ConfigError
        Naming line and field of what is missing or wrong.
    """
    source = Path(path)
    arrivals: list[Arrival] = []
    for number, line in enumerate(_text(source).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{source.name}:{number}"
        fields = _call(where, line)
        timestamp = fields.pop("timestamp", None)
        if at_s is not None:
            timestamp = at_s[len(arrivals)] if len(arrivals) < len(at_s) else None
        slo_ms = fields.pop("slo_ms", None)
        if slo_ms is not None:
            fields["deadline_s"] = _number(f"{where}.slo_ms", slo_ms) / _MS_PER_S
        fields.setdefault("request_id", f"line-{number}")
        when = _number(f"{where}.timestamp", timestamp)
        arrivals.append(_arrival(where, when, "", {**(options or {}), **fields}))
    return _in_order(source, arrivals)


def read_mixed_priority(
    path: str | Path, *, options: Mapping[str, Any] | None = None
) -> tuple[Arrival, ...]:
    """Read a workload of the GF-DiT benchmark: classes, priorities and absolute deadlines.

    ``deadline_ms`` becomes ``deadline_s`` after arrival. ``preemptible`` is not read: every step
    boundary is a point where any class may stop.

    Parameters
    ----------
    path : str or Path
    options : mapping, optional
        As in `read_csv`.

    Raises
    ------
    ConfigError
        Naming the request and field that is missing or wrong.
    """
    source = Path(path)
    try:
        content = json.loads(_text(source))
    except ValueError as error:
        raise ConfigError("workload", str(source), f"a JSON file ({error})") from None
    requests = content.get("requests") if isinstance(content, dict) else None
    if not isinstance(requests, list):
        raise ConfigError(f"{source.name}.requests", type(requests).__name__, "a list")
    return _in_order(
        source,
        [
            _mixed(f"{source.name}.requests.{index}", entry, options or {})
            for index, entry in enumerate(requests)
        ],
    )


def _mixed(where: str, entry: Any, options: Mapping[str, Any]) -> Arrival:
    if not isinstance(entry, dict):
        raise ConfigError(where, entry, "an object")
    for name in (*_MIXED_FIELDS, "arrival_ms", "deadline_ms", "request_class"):
        if name not in entry:
            raise ConfigError(f"{where}.{name}", None, "given")
    fields = {ours: entry[theirs] for theirs, ours in _MIXED_FIELDS.items()}
    arrival_ms, deadline_ms = (
        _number(f"{where}.{name}", entry[name]) for name in ("arrival_ms", "deadline_ms")
    )
    fields["deadline_s"] = (deadline_ms - arrival_ms) / _MS_PER_S
    label = str(entry["request_class"])
    return _arrival(where, arrival_ms / _MS_PER_S, label, {**options, **fields})


def _call(where: str, line: str) -> dict[str, Any]:
    """Keyword arguments of a line ``Request(...)``, literals only: nothing is run."""
    try:
        call = ast.parse(line.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ConfigError(where, line.strip(), "a line Request(name=value, ...)") from None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or (
        call.func.id != "Request" or call.args
    ):
        raise ConfigError(where, line.strip(), "a line Request(name=value, ...)")
    return dict(_keywords(where, call))


def _keywords(where: str, call: ast.Call) -> Iterator[tuple[str, Any]]:
    known = (*_LINE_FIELDS, *_LINE_EXTRA)
    for keyword in call.keywords:
        if keyword.arg not in known:
            raise ConfigError(f"{where}.{keyword.arg}", keyword.arg, f"one of {', '.join(known)}")
        try:
            value = ast.literal_eval(keyword.value)
        except ValueError:
            text = ast.unparse(keyword.value)
            raise ConfigError(f"{where}.{keyword.arg}", text, "a literal value") from None
        if value is not None:
            yield _LINE_FIELDS.get(keyword.arg, keyword.arg), value


def _arrival(where: str, at_s: float, label: str, fields: Mapping[str, Any]) -> Arrival:
    if not (at_s >= 0 and math.isfinite(at_s)):
        raise ConfigError(f"{where}.at_s", at_s, "a finite time of 0 or later")
    try:
        request = GenerationRequest.parse(**{**DEFAULT_OPTIONS, **fields})
    except InvalidRequest as error:
        raise ConfigError(f"{where}.{error.field}", error.value, error.allowed) from None
    return Arrival(at_s=at_s, request=request, label=label)


def _in_order(source: Path, arrivals: list[Arrival]) -> tuple[Arrival, ...]:
    seen: set[str] = set()
    for arrival in arrivals:
        if arrival.request.request_id in seen:
            raise ConfigError(
                f"{source.name}.request_id", arrival.request.request_id, "given only once"
            )
        seen.add(arrival.request.request_id)
    return tuple(sorted(arrivals, key=lambda arrival: arrival.at_s))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("path", str(path), f"a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError("path", str(path), "a text file in UTF-8") from None


def _number(field: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(field, value, "a number") from None
