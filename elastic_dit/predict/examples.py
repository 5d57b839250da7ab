"""What splits were seen to reach: simulated, or recorded from a running cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elastic_dit.errors import ConfigError
from elastic_dit.files import write_atomically
from elastic_dit.predict.split import Split
from elastic_dit.predict.workload import Workload

__all__ = [
    "TIE",
    "Example",
    "Outcome",
    "Situation",
    "append_example",
    "best_split",
    "read_examples",
    "write_examples",
]

TIE = 0.005
"""Throughputs that differ by so small a part are equal: then latency decides. While arrivals are
what limits a cluster, all splits that keep up are so."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a predictor is asked about.

    Attributes
    ----------
    workload : Workload
    gpus : mapping of str to int
        By kind.
    """

    workload: Workload
    gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a split reached.

    Attributes
    ----------
    throughput_hz : float
        Completed requests per second.
    latency_s : float
        Mean, from arrival to the end.

    Raises
    ------
    ConfigError
        Where either is not finite and above 0.
    """

    throughput_hz: float
    latency_s: float

    def __post_init__(self) -> None:
        for name in ("throughput_hz", "latency_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(name, getattr(self, name), "a finite number above 0")


@dataclass(frozen=True, slots=True)
class Example:
    """A situation, and what the splits reached that were tried in it.

    A simulation tries many, a running cluster one at a time: both teach.

    Attributes
    ----------
    situation : Situation
    seen : tuple of (Split, Outcome)
        At least one.
    """

    situation: Situation
    seen: tuple[tuple[Split, Outcome], ...]

    def __post_init__(self) -> None:
        if not self.seen:
            raise ConfigError("seen", self.seen, "at least one split")


def best_split(outcomes: Mapping[Split, Outcome]) -> Split:
    """The split of the highest throughput; of those within `TIE` of it, that of least latency.

    Examples
    --------
    >>> few, many = Split.of({"": 1}, {"": 2}, {"": 1}), Split.of({"": 1}, {"": 1}, {"": 2})
    >>> best_split({few: Outcome(1.0, 9.0), many: Outcome(0.999, 8.0)})
    Split(1:1:2)
    """
    enough = (1 - TIE) * max(outcome.throughput_hz for outcome in outcomes.values())
    return min(
        (split for split, outcome in outcomes.items() if outcome.throughput_hz >= enough),
        key=lambda split: outcomes[split].latency_s,
    )


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Write telemetry as lines of JSON, one example each.

    Raises
    ------
    SaveError
        Where the file could not be written.
    """
    lines = (_adapter().dump_json(example) + b"\n" for example in examples)
    write_atomically(Path(path), b"".join(lines))


def append_example(path: str | Path, example: Example, kept: int) -> None:
    """Add one to a file of telemetry, which may not be there yet; whole or not at all.

    Parameters
    ----------
    path : path-like
    example : Example
    kept : int
        Latest examples that stay in the file.

    Raises
    ------
    ConfigError
        Where the file holds something else; it stays as it is.
    SaveError
        Where the file could not be written.
    """
    before = list(read_examples(path)) if Path(path).exists() else []
    write_examples(path, [*before, example][-kept:])


def read_examples(path: str | Path) -> Iterator[Example]:
    """Read telemetry back.

    Raises
    ------
    ConfigError
        Where the file cannot be read, or a line is wrong.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError("examples", str(path), f"a readable file ({error.strerror})") from None
    for number, line in enumerate(lines, start=1):
        try:
            yield _adapter().validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "all of it"
            raise ConfigError(f"examples, line {number}", where, first["msg"]) from None


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Example)
