"""Published measurements and workloads that ship with the package; README.md names the sources."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

__all__ = ["data_path"]


def data_path(name: str) -> Path:
    """Where a packaged data file or folder lies.

    Raises
    ------
    FileNotFoundError
        Where the package has no such file.

    Examples
    --------
    >>> data_path("ddit_fig17_stage_latency.csv").name
    'ddit_fig17_stage_latency.csv'
    """
    with as_file(files(__name__) / name) as path:
        if not path.exists():
            raise FileNotFoundError(f"elastic-dit ships no data file {name!r}")
        return path
