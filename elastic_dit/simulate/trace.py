"""Workloads by a file of any known form, or by a published experiment's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.simulate.ddit_grid import REQUESTS, Cell
from elastic_dit.simulate.readers import read_csv, read_mixed_priority, read_request_lines
from elastic_dit.simulate.workload import Arrival

__all__ = ["named_workload", "read_trace"]

_DDIT = re.compile(r"ddit:(\d+):(\d+):(\d+)@(\d+(?:\.\d+)?|burst)")
_MIXED = re.compile(r"mixed-priority:([a-z_]+)@(default|\d\.\d)")
_FORM = "ddit:LOW:MEDIUM:HIGH@RATE (or @burst), or mixed-priority:PROFILE@LOAD"


def read_trace(path: str | Path) -> Sequence[Arrival]:
    """Read a trace: JSON of the mixed-priority form, lines ``Request(...)``, or CSV.

    Which it is, its first character that counts tells.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    ConfigError
        Where it cannot be read, holds no request, or a line is wrong.
    """
    source = Path(path)
    try:
        with source.open(encoding="utf-8") as file:
            lines = (line.strip() for line in file)
            first = next((line for line in lines if line and not line.startswith("#")), "")
    except OSError as error:
        raise ConfigError("trace", str(path), f"a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError("trace", str(path), "a text file in UTF-8") from None
    if first.startswith("{"):
        arrivals = read_mixed_priority(source)
    elif first.startswith("Request("):
        arrivals = read_request_lines(source)
    else:
        arrivals = read_csv(source)
    if not arrivals:
        raise ConfigError("trace", str(path), "a trace with at least one request")
    return arrivals


def named_workload(name: str, *, count: int = REQUESTS, seed: int = 0) -> Sequence[Arrival]:
    """A published workload, such as ``ddit:1:1:1@0.5`` or ``mixed-priority:tridentserve@1.5``.

    Parameters
    ----------
    name : str
    count : int
        Requests, for ``ddit``.
    seed : int

    Raises
    ------
    ConfigError
        Where there is none of that name.

    Examples
    --------
    >>> len(named_workload("ddit:1:1:1@burst", count=9))
    9
    """
    if ddit := _DDIT.fullmatch(name):
        low, medium, high = (int(ddit[group]) for group in (1, 2, 3))
        rate = None if ddit[4] == "burst" else float(ddit[4])
        return Cell((low, medium, high), rate).arrivals(seed, count)
    if mixed := _MIXED.fullmatch(name):
        file = f"mixed_priority/workloads/a14b_{mixed[1]}_seed{seed}_load{mixed[2]}.json"
        try:
            return read_mixed_priority(data_path(file))
        except FileNotFoundError:
            raise ConfigError("mix", f"{name}, seed {seed}", "a packaged workload") from None
    raise ConfigError("mix", name, _FORM)
