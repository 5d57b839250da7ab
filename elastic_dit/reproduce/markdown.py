"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequence of str

    Examples
    --------
    >>> print(table(["policy", "s"], [["elastic", "1.2"]]))
    | policy | s |
    |---|---:|
    | elastic | 1.2 |
    """
    lines = [head, *rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|---|" + "---:|" * (len(head) - 1), *text[1:]])
