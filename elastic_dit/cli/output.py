"""Where commands write: figures as JSON to a file or standard output, words to the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_json_path", "human_console", "slug", "write_json"]

STANDARD_OUTPUT = "-"
_SLUG_CHARACTERS = 40


def check_json_path(path: str | None) -> None:
    """Fail before work is spent where the figures could not be written.

    Raises
    ------
    SaveError
        Where the directory is missing or may not be written.
    """
    from elastic_dit.files import check_target

    if path is not None and path != STANDARD_OUTPUT:
        check_target(path)


def human_console(json_path: str | None) -> Console:
    """Console for people: standard error while standard output carries the JSON."""
    from rich.console import Console

    return Console(stderr=json_path == STANDARD_OUTPUT, highlight=False)


def write_json(path: str | None, document: str) -> None:
    """Write a JSON document where ``--json`` said.

    Parameters
    ----------
    path : str or None
        A file, ``-`` for standard output, None for nowhere.
    document : str
        JSON.

    Raises
    ------
    SaveError
        Where the file cannot be written.
    """
    import sys

    from elastic_dit.files import write_atomically

    if path == STANDARD_OUTPUT:
        sys.stdout.write(f"{document}\n")
        sys.stdout.flush()
    elif path is not None:
        write_atomically(path, f"{document}\n".encode())


def slug(prompt: str) -> str:
    """A file name's part that says what is in the file.

    >>> slug("A red circle moving left, on a black background!")
    'a-red-circle-moving-left-on-a-black'
    >>> slug("赤い丸")
    'untitled'
    """
    import re

    words = "-".join(re.findall(r"[a-z0-9]+", prompt.lower()))
    if len(words) > _SLUG_CHARACTERS:
        words = words[:_SLUG_CHARACTERS].rpartition("-")[0] or words[:_SLUG_CHARACTERS]
    return words or "untitled"
